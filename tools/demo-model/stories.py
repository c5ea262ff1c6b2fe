# stories.py owns the grammar of the demo corpus: how a template becomes English sentences, who is
# called by name and who by pronoun, and how one document (request, title, story, questions) is put
# together. The words are in lexicon.py, the plots in plots.py.
#
# Template language, expanded left to right:
#   [a|b|c]   one of these, nested at will          {x}    a plain word of the story, e.g. {o}
#   {p}       person p, subject form                {p:o} object, {p:s} possessive, {p:r} reflexive
#   {p:n} {p:S} always the name (possessive: S)     {p:d}  always the description ("the baker")
#   {p:u} {p:uo} {p:us}  always the pronoun         << >>  quotation marks of this document's style
#   <<~       a quotation that goes on in lower case
# A person becomes a pronoun only where the last person of that gender who was mentioned is the same
# one and was mentioned in this sentence or the one before: a reader (and a model that learns from
# this text) can always tell who is meant, but has to keep track.

import random
import re

import lexicon as L

PRONOUN = {"she": ("she", "her", "her", "herself"), "he": ("he", "him", "his", "himself")}
SLOT = re.compile(r"\{(\w+)(?::(\w+))?\}")
SENTENCE_END = re.compile(r"[.!?](?:>>)?(?=\s|$)")
AN_EXCEPTIONS = re.compile(r"^(one|once|use|unic|euro|unit)", re.I)
AN_SILENT_H = re.compile(r"^(hour|honest|honou|heir)", re.I)


class Words(dict):
    """Plain slots. A choice in a word is made once, when the word is set, not at each mention."""

    def __init__(self, choose):
        super().__init__()
        self.choose = choose

    def __setitem__(self, key, value):
        super().__setitem__(key, self.choose(value) if isinstance(value, str) else value)

    def update(self, **more):
        for key, value in more.items():
            self[key] = value


class Person:
    def __init__(self, name, gender, description, trait):
        self.name, self.gender, self.description = name, gender, description
        self.trait, self.habit = trait
        self.seen = -9          # index of the sentence that mentioned this person last
        self.run = 0            # pronouns since the last full mention


class Story:
    """One document under construction. Plots call say() and para(); finish() returns the text."""

    def __init__(self, rng, held_out=False):
        self.rng = rng
        self.pick = rng.choice
        # One held-out document in three takes its names from those that training never has.
        self.new_names = held_out and rng.random() < 1 / 3
        self.words = Words(self.choose)   # plain slots
        self.people = {}        # slot -> Person
        self.last = {}          # gender -> Person mentioned last
        self.sentence = 0
        self.paragraphs = [[]]
        self.questions = []     # (question template, answer template), expanded after the story
        self.requests = []      # request templates that fit this story
        self.titles = []
        self.used_names = set()
        self.used_traits = set()
        season, dates, scenes = self.pick(L.SEASONS)
        self.words.update(season=season, date=self.pick(dates), scene=self.pick(scenes),
                          town=self.pick(L.TOWNS), townkind=self.pick(L.TOWN_KINDS))

    # ---- the cast -------------------------------------------------------------------------------

    def name(self, gender):
        pool = L.SHE if gender == "she" else L.HE
        if self.new_names:
            pool = L.HELD_SHE if gender == "she" else L.HELD_HE
        while True:
            n = self.pick(pool)
            # two names of one story never share a first letter: easier on the reader
            if n[0] not in {u[0] for u in self.used_names}:
                self.used_names.add(n)
                return n

    def trait(self):
        while True:
            t = self.pick(L.TRAITS)
            if t not in self.used_traits:
                self.used_traits.add(t)
                return t

    def cast(self, slot, description, gender=None):
        gender = gender or self.pick(["she", "he"])
        p = Person(self.name(gender), gender, description, self.trait())
        self.people[slot] = p
        self.words[slot + "trait"], self.words[slot + "habit"] = p.trait, p.habit
        return p

    def hero(self, child=None):
        """Slot p, with the words of a trade or of a childhood, and slot q, somebody close to p."""
        w = self.words
        child = self.rng.random() < 0.3 if child is None else child
        gender = self.pick(["she", "he"])
        if child:
            doing, did = self.pick(L.HOBBIES)
            age = self.pick(["seven", "eight", "nine", "ten", "eleven", "twelve"])
            w.update(doing=doing, did=did, who="girl" if gender == "she" else "boy", age=age)
            self.cast("p", "the " + w["who"], gender)
            w["intro"] = self.pick(["a {ptrait} {who} of {age}", "a {who} of {age}", "a {ptrait} {who}", "a small, {ptrait} {who}"])
            w["life"] = self.pick(["loved {doing}", "spent every free hour {doing}", "{did} whenever there was no school",
                                   "was known for {doing}"])
        else:
            noun, place, tool, wares, doing, did = self.pick(L.TRADES)
            if gender == "she":
                noun = noun.replace("fisherman", "fisherwoman").replace("ferryman", "ferrywoman") \
                           .replace("postman", "postwoman").replace("waiter", "waitress")
            w.update(trade=noun, work=place, tool=tool, wares=wares, doing=doing, did=did, who=noun)
            self.cast("p", "the " + noun, gender)
            w["intro"] = self.pick(["a {trade}", "a {ptrait} {trade}", "a young {trade}", "an old {trade}", "a hard-working {trade}",
                                    "a {ptrait} young {trade}", "a rather {ptrait} old {trade}"])
            w["life"] = self.pick(["worked in the {work}", "spent the days {doing} in the {work}", "{did} from morning to night",
                                   "made a living by {doing}", "had kept the {work} for {years} years"])
            w["years"] = self.pick(L.NUMBERS)
        w["child"] = child
        kin, g = self.pick(L.KIN_CHILD if child else L.KIN_ADULT)
        if kin == "wife" and gender == "she":
            kin, g = "husband", "he"
        if kin == "husband" and gender == "he":
            kin, g = "wife", "she"
        w["kin"] = kin
        self.cast("q", "{p:s} " + kin, g)

    def thing(self, slot="o"):
        w = self.words
        taken = {v for k, v in w.items() if k.endswith("_")}
        while True:
            noun, adjectives = self.pick(L.OBJECTS)
            if noun not in taken:
                break
        w[slot + "_"] = noun                              # {o_}: short, {o}: with its adjective
        w[slot] = self.pick(adjectives) + " " + noun

    def places(self, n, outdoors=False):
        for i, (noun, at) in enumerate(self.rng.sample(L.LANDMARKS[:-5 * outdoors or None], n)):
            self.words[f"l{i}"], self.words[f"at{i}"] = noun, at

    def animal(self):
        w = self.words
        w["species"], w["sounded"], w["sound"], w["acted"], w["treat"] = self.pick(L.ANIMALS)
        w["pet"] = self.pick(L.PETS)

    # ---- from template to text ------------------------------------------------------------------

    def choose(self, t):
        """Resolve every [a|b] of t, innermost choices last, so that rare branches stay rare."""
        out, depth, start, cuts = [], 0, 0, []
        i = 0
        while i < len(t):
            c = t[i]
            if c == "[":
                if depth == 0:
                    out.append(t[start:i])
                    start, cuts = i + 1, []
                depth += 1
            elif c == "|" and depth == 1:
                cuts.append(i)
            elif c == "]":
                depth -= 1
                if depth == 0:
                    edges = [start - 1] + cuts + [i]
                    k = self.rng.randrange(len(edges) - 1)
                    out.append(self.choose(t[edges[k] + 1:edges[k + 1]]))
                    start = i + 1
            i += 1
        assert depth == 0, t
        out.append(t[start:])
        return "".join(out)

    def refer(self, slot, form):
        p = self.people[slot]
        pron = PRONOUN[p.gender]
        case = {"": 0, "o": 1, "s": 2, "r": 3, "n": 0, "d": 0, "u": 0, "uo": 1, "us": 2, "S": 2}[form]
        clear = self.last.get(p.gender) is p and self.sentence - p.seen <= 1
        if form in ("u", "uo", "us", "r"):
            text = pron[case]
        elif form not in ("n", "d", "S") and clear and p.run < 4 and self.rng.random() < (0.95 if form == "s" else 0.8):
            text = pron[case]
            p.run += 1
        else:
            describe = form == "d" or (form == "" and p.seen >= 0 and slot != "q" and self.rng.random() < 0.12)
            text = self.slots(p.description) if describe else p.name
            if case == 2:
                text += "'s" if not text.endswith("s") else "'"
            p.run = 0
        self.last[p.gender] = p
        p.seen = self.sentence
        return text

    def slots(self, t):
        out, pos = [], 0
        for m in SLOT.finditer(t):
            lit = t[pos:m.start()]
            self.sentence += len(SENTENCE_END.findall(lit))
            out.append(lit)
            key, form = m.group(1), m.group(2) or ""
            if key in self.people:
                out.append(self.refer(key, form))
            else:
                out.append(self.slots(str(self.words[key])))
            pos = m.end()
        self.sentence += len(SENTENCE_END.findall(t[pos:]))
        out.append(t[pos:])
        return "".join(out)

    def expand(self, t):
        s = self.slots(self.choose(t)).strip()
        s = re.sub(r"\s+", " ", s)
        s = re.sub(r"(^|[.!?] |\.>> |<<)([^\W\d_])", lambda m: m.group(1) + m.group(2).upper(), s)
        s = s.replace("<<~", "<<")

        def article(m):
            w = m.group(2)
            an = (w[0].lower() in "aeioué" and not AN_EXCEPTIONS.match(w)) or AN_SILENT_H.match(w)
            return m.group(1) + ("n " if an else " ") + w
        return re.sub(r"\b([Aa])n? ([\wé-]+)", article, s)

    # ---- what plots call ------------------------------------------------------------------------

    def say(self, *templates):
        self.paragraphs[-1].append(self.expand(self.pick(templates)))

    def maybe(self, chance, *templates):
        if self.rng.random() < chance:
            self.say(*templates)

    def para(self):
        if self.paragraphs[-1]:
            self.paragraphs.append([])

    def ask(self, question, answer):
        self.questions.append((question, answer))

    def finish(self):
        """The document as a list of turns; the corpus puts an end-of-text token after each."""
        rng = self.rng
        body = "\n\n".join(" ".join(p) for p in self.paragraphs if p)
        head = ""
        kind = rng.random()
        if kind < 0.35:
            head = "Request: " + self.expand(self.pick(self.requests)) + "\n\n"
        elif kind < 0.5:
            title = self.expand(self.pick(self.titles))
            head = " ".join(x if x in ("a", "an", "and", "of", "the", "in", "at", "who", "from") and i else x[0].upper() + x[1:]
                            for i, x in enumerate(title.split())) + "\n\n"
        turns = [head + body]
        if rng.random() < 0.35:
            rng.shuffle(self.questions)
            for q, a in self.questions[:rng.choice([1, 1, 2])]:
                for p in self.people.values():
                    p.seen = -9          # a question never opens with a pronoun
                self.last = {}
                qt = self.expand(q)
                self.last = {}
                turns.append("Request: " + qt + "\n\n" + self.expand(a))
        curly = rng.random() < 0.5
        done = []
        for t in turns:
            if curly:
                t = t.replace("<<", "“").replace(">>", "”").replace("'", "’")
            else:
                t = t.replace("<<", '"').replace(">>", '"')
            done.append(t)
        return done


def document(seed, index, held_out=False):
    """Document number `index` of the corpus with this seed: always the same turns."""
    import plots
    rng = random.Random(f"{seed}/{index}")
    while True:
        s = Story(rng, held_out)
        plot = rng.choice(plots.ALL)
        plot(s)
        # Some pairs of plot and trade exist only in held-out text.
        pair = hash_pair(plot.__name__, s.words.get("trade", s.words["doing"]))
        if pair and not held_out:
            continue
        return s.finish()


def hash_pair(a, b):
    return sum(map(ord, a + b)) % 12 == 0
