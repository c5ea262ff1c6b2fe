# plots.py owns what happens in the demo corpus: each function tells one kind of story (who wants
# what, what goes wrong, who holds which thing and where, how it ends) through Story.say(), and
# leaves the requests, titles and questions that fit it. The template language is in stories.py.
#
# Rule for a new plot: every fact that a later sentence uses (a colour, a place, a name, a trait) must
# have been said before, so that a model can learn to look back instead of to guess.

import lexicon as L


# ---- parts that many plots share ----------------------------------------------------------------

def opening(s):
    """Where, when and who: hero p and, sooner or later, q."""
    s.say(
        "[Once|Long ago|Many years ago|Not so long ago], in the {townkind} of {town}, there lived {intro} [called|named|by the name of] {p:n}.",
        "In {town}, a {townkind} [by the sea|between two hills|at the end of a long road|on the slow river], lived {intro} [called|named] {p:n}.",
        "{p:n} was {intro} in the {townkind} of {town}.",
        "Everyone in {town} knew {p:n}, {intro}.",
        "There was once {intro} [called|named] {p:n}, who lived in {town}.",
        "This is the story of {p:n}, {intro} [from|in] {town}.",
        "It was {date}, and in the {townkind} of {town} {intro} named {p:n} was [already awake|wide awake|up before the sun].")
    s.maybe(0.6, "{p} {life}.")
    s.maybe(0.4, "{p:d} was {ptrait} and {phabit}.", "People said that {p:n} {phabit}.",
            "{p} was a {ptrait} {who}, and everyone knew that {p:u} {phabit}.")
    if s.rng.random() < 0.5:
        s.say("{q:d} {q:n} [was quite different|was the opposite]: {q:n} was {qtrait} and {qhabit}.",
              "{p} [shared a house with|lived next door to|was very fond of|had breakfast every day with] {q:d} {q:n}, who {qhabit}.",
              "{p:s} {kin}, {q:n}, was {qtrait}.",
              "{p} trusted nobody more than {q:d} {q:n}.")
        s.words["qknown"] = True
    else:
        s.words["qknown"] = False


def meet_q(s):
    """A reference to q that also introduces q when the opening did not."""
    if s.words["qknown"]:
        return "{q:n}"
    s.words["qknown"] = True
    return "{q:d} {q:n}"


def weather(s, chance=0.4):
    s.maybe(chance, "{scene}", "It was {date}. {scene}", "The wind [came from the sea|had dropped|rattled the windows|smelled of rain].",
            "[Rain|A fine rain] began to fall.", "The sun [had just come up|stood low over the roofs|hid behind a cloud].")


def one_day(s):
    return s.pick(["One morning", "One evening", "One day", "On {date}", "Late one afternoon", "One {season} morning",
                   "One {season} evening", "Early one morning", "Then, one day"])


def closing(s):
    s.para()
    s.say(
        "[That night|That evening], {p:n} and {q:n} [ate|shared] {food} [by the fire|at the kitchen table|on the front step|by candlelight], and [neither of them|nobody] was in a hurry to go to bed.",
        "From that day on, {moral}.",
        "And whenever [people in {town}|the children of {town}] asked about it, {p:n} [only smiled|laughed and told the story again|said, <<Ask {q:n}.>>].",
        "{p} never forgot that day, and neither did {q:n}.",
        "{p:n} [went to bed|fell asleep|walked home] that night [tired and happy|with a light heart|under a sky full of stars], for [all was well|everything was where it should be|there was nothing left to fear].",
        "<<[Well|So],>> said {q:n} at last, <<~[that is that|all is well|we did that together|who would have thought it]>> — and {p:n} [nodded|laughed|agreed].",
        "It is said in {town} that {moral}, and [perhaps it is true|I believe it|who can say it is not so].")
    s.words.pop("moral", None)


def base(s, child=None, places=3, outdoors=False):
    s.hero(child)
    s.thing("o")
    s.places(places, outdoors)
    s.animal()
    w = s.words
    w["food"] = s.pick(L.FOODS)
    w["num"], w["num2"], w["num3"] = s.rng.sample(L.NUMBERS, 3)
    w["moral"] = s.pick(["{p:n} and {q:n} helped each other in everything", "{p:n} listened more carefully",
                         "the door of {p:s} house was never locked", "nobody in {town} laughed at {p:n} again",
                         "{p:n} kept a lamp burning in the window", "{p:n} was a little wiser and a little less {ptrait}",
                         "{q:n} came by every Sunday", "{p:n} believed that small things matter"])
    s.requests += ["Tell me a story about a {who}.", "Write a short story about a {who} called {p:n}.",
                   "Tell a story that happens in {town}.", "Tell me about {p:n} and {q:n}.",
                   "Tell me a {season} story.", "Write a story about a {who} who {phabit}."]
    s.ask("[Where did {p:n} live?|In which place did {p:n} live?]", "[{p:n} lived in {town}.|In {town}.]")
    s.ask("Who was {q:n}?", "{q:n} was {p:S} {kin}.")
    if not w["child"]:
        s.ask("What was {p:S} work?", "{p:n} was a {trade}.")


# ---- the plots ----------------------------------------------------------------------------------

def lost_thing(s):
    base(s)
    s.requests += ["Tell me a story about a lost {o_}.", "Write a story about a {who} who loses a {o}."]
    s.titles += ["the lost {o_}", "the {o}", "{p:n} and the {o}"]
    opening(s)
    s.say("{p:s} greatest treasure was a {o}[| that had belonged to {p:s} grandmother| that an old sailor had given {p:uo}| bought long ago in {town}].",
          "More than anything else {p} loved a {o}[|, a present from {p:s} father|, the only thing left from {p:s} childhood].",
          "On a shelf beside {p:s} bed lay a {o}, [and nobody else was allowed to touch it|and {p:u} looked at it every night].")
    s.para()
    s.words["when"] = one_day(s)
    s.say("{when}, the {o_} was gone.", "{when}, {p:n} [reached for|went to fetch] the {o_}, and it was not there.",
          "{when}, when {p:n} came home, the {o_} had disappeared.")
    weather(s, 0.2)
    s.say("{p} looked under the bed, behind the stove and in every [drawer|cupboard|pocket], but [found nothing|it was nowhere].",
          "{p} turned the whole house upside down.", "<<It was here yesterday!>> cried {p:n}.")
    s.words["qq"] = meet_q(s)
    s.say("<<[Think|Let us think],>> said {qq}. <<Where did you have it last?>>",
          "{qq} [came to help|put on a coat and came along]. <<Where did you last see it?>> {q:n} asked.")
    s.say("<<[Perhaps|Maybe] {at0},>> said {p:n}, <<~or {at1}.>>", "{p} [thought hard|frowned]. <<I was {at0} on Monday,>> {p:u} said, <<~and {at1} on Tuesday.>>")
    s.para()
    s.say("First they looked {at0}, but there was only [an old shoe|a sleeping {species}|a puddle|a heap of leaves].",
          "So they went to the {l0}. [They searched until their fingers were cold|They looked behind every stone], and found nothing but [a rusty nail|a broken cup|one glove].")
    finder = s.pick(["q", "p", "pet"])
    s.words["hide"] = s.pick(["half buried in the mud", "under a loose board", "between two stones", "in a nest of dry grass", "hanging from a nail", "in the fork of a low branch"])
    if finder == "pet":
        s.say("Then they [walked|went on] to the {l1}, where {p:s} {species}, {pet}, [ran ahead|would not keep still].",
              "At the {l1}, {pet} the {species} was waiting for them.")
        s.say("{pet} {sounded} and {acted}, and there, {hide}, [lay|was] the {o}.", "The {species} {sounded} once. There, {hide}, was the {o}!")
        s.ask("Who found the {o_}?", "{pet} the {species} found it.")
        s.say("<<[Good|Clever] {species}!>> said {q:n}, and {p:n} gave {pet} {treat}.")
    else:
        s.words["f"] = "{%s:n}" % finder
        s.say("Then, {at1}, {f} [stopped|gave a shout|bent down]. <<[Look|Look here|Here it is]!>>", "It was {f} who [saw it first|found it] {at1}.")
        s.say("The {o} was {hide}, [wet but not broken|dusty but whole|just as it had always been].", "There it was, {hide}.")
        s.ask("Who found the {o_}?", "{%s:n} found the {o_}." % finder)
    s.ask("Where was the {o_}?", "[It was {at1}, {hide}.|The {o_} was {at1}.]")
    s.say("{p} held it [tight|in both hands] and [could not say a word|laughed out loud|promised never to lose it again].",
          "<<I must have dropped it when I [stopped to rest|looked at the sky],>> said {p:n}. <<Thank you, {q:n}.>>")
    closing(s)


def stranger(s):
    base(s)
    r = s.cast("r", "the stranger")
    w = s.words
    w["man"] = "woman" if r.gender == "she" else "man"
    s.requests += ["Tell me a story about a stranger.", "Write a story in which a stranger leaves a {o_} behind."]
    s.titles += ["the stranger at the door", "the guest", "a night in {town}"]
    opening(s)
    s.para()
    s.words["when"] = one_day(s)
    s.say("{when}, [in the middle of a storm|when the rain was coming down in sheets|long after the lamps were out], somebody knocked at the door.",
          "{when} there was a knock at {p:s} door.")
    s.say("Outside stood [a tall|an old|a thin|a very wet|a small] {man} with a {o} under one arm.",
          "On the step stood a {man} [in a long grey coat|with a white beard of snow on the collar|without shoes], holding a {o}.")
    s.say("<<My name is {r:n},>> said the stranger. <<[I have walked since morning|I have lost the road|My cart has broken down]. [May I rest here|Is there a corner where I may sleep]?>>",
          "<<Forgive me,>> the stranger said. <<I am called {r:n}, and I have nowhere to sleep.>>")
    w["qq"] = meet_q(s)
    s.say("{qq} was not sure. <<We do not know this {man},>> {q:n} whispered. But {p:n} [shook {p:us} head|had already opened the door wide].",
          "{p} looked at {qq}, and {q:n} nodded.",
          "<<Let the poor {man} in,>> said {qq}, and {p:n} [moved the chair closer to the fire|put another log on the fire].")
    s.para()
    s.say("They gave {r:n} {food} and a dry blanket.", "{p} warmed {food}, and {r:n} ate [without a word|as if it were a feast].")
    s.say("[By the fire|Afterwards], {r:n} told them about [cities on the water|mountains that smoke|a desert where it had not rained for {num} years|ships as long as a street|a king who was afraid of mice].",
          "{r} [said little|asked for nothing more], but {r:s} eyes [shone|were kind].",
          "{r} asked {p:o} about {doing} and nodded. <<That is good work,>> {r:u} said." if not w["child"] else
          "<<And what do you want to be one day?>> {r:n} asked. <<Brave,>> said {p:n}, and nobody laughed.")
    s.para()
    s.say("In the morning the bed was empty[|, and the snow outside had no footprints|, and the door was closed from the inside]. {r:n} was gone.",
          "When {p:n} woke up, {r:n} had already left.")
    s.say("But on the table [lay|was] the {o}, [with a note|and beside it a piece of paper]: <<[For the open door|For a kind house|Thank you for the fire].>>",
          "Only the {o} was still there, [on the chair by the fire|in the middle of the table]. <<It must be for you,>> said {q:n}.")
    s.say("{p} [has kept it ever since|keeps it {at0} to this day|put it in the window], and [every winter|when the wind is loud] {p:u} [leaves a light on|listens for a knock].",
          "Nobody in {town} ever saw {r:n} again, but {p:n} [still keeps the {o_}|never sold the {o_}].")
    s.ask("What did the stranger leave behind?", "[{r:n} left a {o}.|A {o}.]")
    s.ask("What was the stranger's name?", "The stranger was called {r:n}.")
    if s.rng.random() < 0.5:
        closing(s)


def trade_chain(s):
    """Things change hands: the plot that asks most of a model's memory."""
    base(s)
    s.thing("x")
    s.thing("y")
    r = s.cast("r", s.pick(["the old pedlar", "the miller's child", "the sea captain", "the schoolmaster", "the postmistress", "the music teacher"]))
    if "mistress" in r.description and r.gender == "he":
        r.description = "the postmaster"
    if "schoolmaster" in r.description and r.gender == "she":
        r.description = "the schoolmistress"
    s.requests += ["Tell me a story about trading things.", "Write a story about a {who} who needs a {y_}.", "Tell a story with a {o_}, a {x_} and a {y_}."]
    s.titles += ["three trades", "{p:n} makes a trade", "the {o}, the {x} and the {y}"]
    opening(s)
    s.say("{p} needed a {y_}[| more than anything], but had [no money|not a single coin]. All {p:u} owned was a {o}.",
          "{p} wanted a {y_}, and had nothing to give for it but a {o}.")
    s.para()
    s.words["qq"] = meet_q(s)
    s.say("So {p} went to {qq} [with the {o_} under one arm|and showed {q:uo} the {o_}]. <<[I have always wanted one of those|That is just what I need],>> said {q:n}. <<I will give you my {x} for it.>>",
          "{at0}, {p:n} met {qq}. <<What a fine {o_}!>> said {q:n}. <<Will you take my {x} for it?>>")
    s.say("{p} [thought for a moment|looked at it from all sides] and said yes. Now {q:n} had the {o_}, and {p:n} had the {x_}.",
          "They shook hands. {q:n} went off with the {o_}, and {p:n} walked on with the {x}.")
    s.para()
    s.say("{at1}, {p:n} met {r:d}, whose name was {r:n}.", "Next {p} came to the {l1}, where {r:d}, {r:n}, was [eating lunch|mending a fence|waiting for the rain to stop].")
    s.say("<<A {x}!>> said {r:n}. <<I had one when I was small.>>", "{r} looked at the {x_} and [sighed|smiled]. <<Where did you get that?>> {r:u} asked. <<From {q:n},>> said {p:n}.")
    s.say("{r} [opened a bag|went inside] and [brought out|came back with] a {y}. <<Would you trade it for this?>>",
          "<<I have a {y} that I never use,>> {r:n} said. <<Take it, and give me the {x_}.>>")
    s.say("{p} could [hardly believe it|have danced]. So {r:n} kept the {x_}, and {p:n} carried the {y} home.",
          "<<With all my heart,>> said {p:n}, and gave {r:n} the {x_}, and took the {y_}.")
    s.para()
    s.say("In the end {q:n} had the {o_}, {r:n} had the {x_}, and {p:n} had the {y_} — and each of them thought that the others had made a bad bargain.",
          "[When {q:n} heard of it|That evening], {q:n} laughed. <<A {o_} for a {x_}, and a {x_} for a {y_}!>>",
          "Everyone was content: {q:n} with the {o}, {r:n} with the {x}, and {p:n} with the {y}.")
    s.ask("Who has the {o_} now?", "{q:n} has the {o_}.")
    s.ask("Who has the {x_} [now|in the end]?", "{r:n} has the {x_}.")
    s.ask("Who has the {y_} at the end?", "{p:n} has the {y_}.")
    s.ask("What did {p:n} give to {q:n}?", "{p:n} gave {q:n} the {o}.")
    if s.rng.random() < 0.4:
        closing(s)


def broken_promise(s):
    """A thing is broken, a lie is told, the truth comes out."""
    base(s)
    s.requests += ["Tell me a story about telling the truth.", "Write a story about a broken {o_}.", "Tell a story in which somebody lies and is sorry."]
    s.titles += ["the broken {o_}", "the truth", "{p:n} tells the truth"]
    opening(s)
    s.words["qq"] = meet_q(s)
    s.say("{qq} owned a {o}, [and was very proud of it|and kept it {at0}|the finest in {town}].",
          "Nothing was dearer to {qq} than a {o}.")
    s.para()
    s.words["when"] = one_day(s)
    s.say("{when}, when {q:n} was [away|asleep|out], {p:n} [picked up the {o_}|wanted to look at the {o_}] just for a moment. It slipped and [broke in two|fell on the stones|cracked from top to bottom].",
          "{when}, {p:n} borrowed the {o_} without asking, and [sat on it|dropped it|let it fall down the stairs].")
    s.say("{p:s} heart [beat fast|stood still]. {p:n} pushed the pieces under [the bed|the rug|a heap of straw].",
          "{p} looked left and right. Nobody had seen it — nobody but {pet} the {species}.")
    s.say("<<Where is my {o_}?>> asked {q:n} [that evening|at supper|an hour later]. <<[I think {pet} the {species} took it|It was {pet} the {species}|{pet} the {species} broke it],>> said {p:n}, [looking at the floor|and turned red].",
          "When {q:n} came back and found it, {p:n} said quickly, <<[{pet} the {species} did it|It was {pet} the {species}]! I saw it.>>")
    s.say("{q} was angry and [shut|locked] {pet} in the [cellar|shed|barn]. All night long the {species} {sounded}.",
          "So poor {pet} got no supper, and {sounded} sadly at the door.")
    s.para()
    s.say("{p} could not sleep. [Every {sound}|Each {sound}] [was like a needle|went straight to {p:us} heart].",
          "{p} lay awake and listened. <<It is not fair,>> {p:u} thought. <<{pet} did nothing.>>")
    s.say("[At dawn|In the middle of the night|Before breakfast], {p} went to {q:n}. <<I broke your {o_},>> {p:u} said. <<{pet} is innocent. I was afraid to tell you.>>",
          "At last {p} got up, woke {q:n} and told {q:uo} everything.")
    s.say("{q} [said nothing for a long time|looked at the pieces]. Then {q:u} [put a hand on {p:S} shoulder|smiled a little]. <<A {o_} can be mended,>> {q:n} said. <<[A lie is harder to mend|The truth is worth more].>>",
          "<<[I knew|I thought so],>> said {q:n}. <<A {species} cannot [open a cupboard|climb a shelf]. [I was waiting for you to say it|Thank you for telling me].>>")
    s.say("[Together|That day] they [let {pet} out|opened the door for {pet}], and {p:n} gave the {species} {treat} [and an apology|and a long hug].",
          "{pet} was set free at once, and got {treat} for breakfast.")
    s.maybe(0.6, "It took {p} {num} days to [mend the {o_}|glue the {o_} together], and the crack can still be seen.")
    s.ask("Who really broke the {o_}?", "{p:n} broke it.")
    s.ask("Who was blamed for the broken {o_}?", "{pet} the {species} was blamed.")
    s.ask("Whose {o_} was it?", "It was {q:S} {o_}.")
    if s.rng.random() < 0.5:
        closing(s)


def rescue(s):
    base(s, outdoors=True)
    w = s.words
    s.requests += ["Tell me a story about a {species}.", "Write a story about a {who} who saves a {species}.", "Tell me a story about an animal that is hurt."]
    s.titles += ["the {species}", "{p:n} and the {species}", "the {species} {at0}"]
    w["nth"] = s.pick(["third", "fourth", "fifth", "sixth", "seventh", "ninth", "tenth"])
    w["wound"], w["cure"] = s.pick([("a broken leg", "a splint of wood"), ("a thorn in its foot", "warm water and a clean cloth"),
                                    ("a deep cut", "honey and a bandage"), ("a piece of wire around its neck", "a pair of pliers"), ("a fever", "herbs and patience")])
    opening(s)
    s.para()
    w["when"] = one_day(s)
    s.say("{when}, {p:n} was [walking past|on the way home from] the {l0} when {p:u} heard a [weak|strange|small] {sound}.",
          "{when}, {at0}, something {sounded} [in the grass|behind a wall|very softly].")
    s.say("It was a {species} with {wound}.", "[There lay|In the ditch lay] a young {species}, and it had {wound}.")
    s.say("{p} took off {p:us} coat, wrapped the {species} in it and [carried it home|ran all the way home].",
          "<<Do not be afraid,>> {p:n} said, and lifted it [gently|with great care].")
    w["qq"] = meet_q(s)
    s.say("<<It will not live,>> said {qq}. <<[Wait and see|We shall see],>> answered {p:n}.",
          "{qq} [fetched|found] {cure}, and [together|side by side] they did what they could.",
          "<<You cannot keep [every animal|a {species}] in the house!>> said {qq}, but {q:n} was already [looking for a box|making a bed of straw].")
    s.para()
    s.say("They named it {pet}.", "{p:n} called the {species} {pet}.", "<<What shall we call it?>> asked {q:n}. <<{pet},>> said {p:n} at once.")
    s.say("For {num} days {p} [sat beside it|hardly slept] and fed it {treat}, a little at a time.", "With {cure} and a great deal of sleep, {pet} grew stronger [day by day|every day].",
          "On the {nth} day, {pet} {acted} for the first time.")
    s.say("Soon the {species} {sounded} whenever {p:n} came in.", "Before long {pet} [followed {p:o} everywhere|knew the sound of {p:s} step].")
    s.para()
    if s.rng.random() < 0.5:
        s.say("When [spring came|the leg was strong again|it was well], {p} opened the door. {pet} [looked back once|waited a moment], {acted}, and [was gone|ran into the {l1}].",
              "Then the day came to let it go. {p:n} and {q:n} carried {pet} to the {l1} and set it down.")
        s.say("<<Goodbye, {pet},>> [whispered|said] {p:n}.", "{p} [cried a little|waved until there was nothing left to wave at].")
        s.say("But every {season}, [early in the morning|when the moon is full], a {species} comes to {p:s} window and [looks in|waits for {treat}].",
              "A year later, {at1}, {p:n} heard a {sound} that {p:u} knew. {pet} had not forgotten.")
        s.ask("Did {pet} stay with {p:n}?", "No, {p:n} set {pet} free.")
    else:
        s.say("{p} opened the door so that {pet} could leave, but the {species} [did not want to go|only {acted}].",
              "<<It is free to go,>> said {q:n}. {pet} {sounded}, {acted} and [lay down by the stove|stayed exactly where it was].")
        s.say("So {pet} stayed, and [is there still|sleeps by the stove to this day].", "And that is how {p:n} came to have a {species}.")
        s.ask("Did {pet} stay with {p:n}?", "Yes, {pet} stayed.")
    s.ask("What was wrong with the {species}?", "It had {wound}.")
    s.ask("What was the {species} called?", "It was called {pet}.")
    s.maybe(0.5, "{q} [pretended to mind|complained, but only a little], [and gave it {treat} when nobody was looking|and loved it as much as {p:n} did].")


def quarrel(s):
    base(s, outdoors=True)
    w = s.words
    w["cause"], w["proof"] = s.pick([
        ("who should have the {o}", "the {o_}"), ("a debt of {num} coins", "the money"), ("whose turn it was to fetch water", "the bucket"),
        ("an unkind word", "the word"), ("the right way to [make soup|tie a knot|boil an egg]", "it"), ("a fence that stood one foot too far to the left", "the fence"),
        ("which of them had seen the {o} first", "the {o_}")])
    s.requests += ["Tell me a story about a quarrel.", "Write a story about two people who stop speaking to each other.", "Tell a story about {p:n} and {p:s} {kin}."]
    s.titles += ["the quarrel", "not a word", "{p:n} and {q:n}"]
    opening(s)
    w["qq"] = meet_q(s)
    s.say("{p} and {qq} [had never quarrelled before|were always together], until {date}.",
          "Nobody had ever heard {p:n} and {qq} [shout|quarrel].")
    s.para()
    s.say("It began with {cause}.", "They quarrelled about {cause}.", "The trouble was {cause}.")
    s.say("<<[You never listen|You are impossible]!>> said {p:n}. <<And you are [too {ptrait}|as stubborn as a mule]!>> said {q:n}.",
          "One word led to another, and in the end {q:n} [slammed the door|walked away without a goodbye].")
    s.say("For {num} days they did not speak. {p:n} ate alone, and {q:n} [crossed the street|looked the other way].",
          "{num} days went by. If {p:n} came to the {l0}, {q:n} left; if {q:n} came, {p:n} left.")
    s.maybe(0.5, "The house was very quiet. {p:n} tried {doing}, but it was no pleasure.", "Even {pet} the {species} [seemed sad|would not eat].")
    s.para()
    w["event"] = s.pick(["the river rose", "a storm tore the roof off the {l1}", "fire broke out {at1}", "{pet} the {species} ran away", "the ice on the pond cracked under {q:n}", "the bridge fell down with {q:n} on it"])
    s.say("Then, [one night|in the second week|on Sunday], {event}.", "Nobody knows how long it might have gone on. But [one night|one evening], {event}.")
    s.say("{p} [did not stop to think|ran without a coat]. {at1} {p:u} found {q:n}, [wet and shivering|alone and frightened|trying to help].",
          "Everyone ran to help, and in the dark {p:n} [took hold of a rope|reached for a hand]. At the other end was {q:n}.")
    s.say("They worked [side by side|hand in hand] until morning, and when it was over they [sat down on the ground|looked at each other] and began to laugh.",
          "<<Hold on!>> cried {p:n}. <<I have you!>> [And {p:u} did not let go.|And it was true.]")
    s.say("<<I cannot even remember why [we quarrelled|I was angry],>> said {q:n}. <<It was {cause},>> said {p:n}, and [that made them laugh again|it sounded very foolish].",
          "<<I am sorry,>> they said at the same moment.", "<<You were right,>> said {p:n}. <<No, you were,>> said {q:n}.")
    s.ask("What did {p:n} and {q:n} quarrel about?", "They quarrelled about {cause}.")
    s.ask("How long did they not speak?", "They did not speak for {num} days.")
    closing(s)


def delivery(s):
    base(s, places=4, outdoors=True)
    w = s.words
    r = s.cast("r", s.pick(["the old captain", "a sick friend", "a great-aunt", "the schoolteacher", "the widow on the hill", "the judge"]))
    if "widow" in r.description and r.gender == "he":
        r.description = "the widower on the hill"
    w["town2"] = s.pick([t for t in L.TOWNS if t != w["town"]])
    s.requests += ["Tell me a story about a journey.", "Write a story about a {who} who carries a {o_} to {town2}.", "Tell a story about a journey from {town} to {town2}."]
    s.titles += ["the road to {town2}", "a {o_} for {r:n}", "the journey"]
    opening(s)
    s.para()
    w["when"] = one_day(s)
    w["qq"] = meet_q(s)
    s.say("{when}, {qq} gave {p:o} a {o}. <<This must be in {town2} by [nightfall|tomorrow noon|Saturday],>> {q:n} said. <<Take it to {r:n}, {r:d}.>>",
          "{when} a message came: {r:n}, {r:d} in {town2}, needed a {o}, and {qq} had one. <<[I will take it|Let me go],>> said {p:n}.")
    s.say("{p} [wrapped|put bread and cheese in a bag, wrapped] the {o_} in a cloth and [set out|started] before [dawn|breakfast].",
          "It was {num} miles to {town2}, and there was no [cart|train|boat]. {p:n} put on strong boots and set out.")
    s.para()
    w["trouble"], w["way"] = s.pick([
        ("the bridge was gone", "a fallen tree lay across the water"), ("fog came down, so thick that {p:n} could not see {p:us} own feet", "far away a bell was ringing"),
        ("the road was under water", "an old man rowed past in a flat boat"), ("it began to snow", "there were fresh cart tracks in the snow"),
        ("{p:n} took the wrong path and came to a swamp", "stones had been laid there by somebody long ago")])
    s.say("At the {l0}, {trouble}.", "All went well as far as the {l0}. There {trouble}.")
    s.say("<<[What now|Now what]?>> said {p:n} [aloud|to nobody]. [Then {p:u} saw|But then {p:u} noticed] that {way}.",
          "{p} [sat down and thought|nearly turned back]. But {way}, and so [{p:u} went on|the journey went on].")
    s.say("{at1} {p} met a {species}[, which {sounded} and {acted}| that {sounded} at {p:uo}]. {p:n} gave it {treat}, and it [showed {p:uo} the way|walked with {p:uo} for a mile|let {p:uo} pass].",
          "[Later|Farther on], a man with a cart offered {p:o} {num2} silver coins for the {o_}. <<It is not mine to sell,>> said {p:n}.",
          "At noon {p} rested {at1} and ate. The {o_} was [still dry|safe]. <<Half the way,>> {p:u} said.")
    s.para()
    s.say("[The stars were out|The lamps were lit|It was just getting dark] when {p:n} reached {town2} and knocked at {r:s} door.",
          "At last, [tired and muddy|with aching feet], {p:n} stood in {town2}, {at2}, and asked for {r:n}.")
    s.say("{r:n} unwrapped the {o} and [was silent for a long time|began to cry with joy]. <<[You do not know what this means to me|I had given up hope],>> {r:n} said.",
          "<<From {q:n}?>> said {r:n}. <<[And you walked all that way|On foot? In this weather]? Come in, come in!>>")
    s.say("{p} was given {food} and [a feather bed|the best chair], and the next day {r:n} [drove {p:o} home in a cart|sent {p:o} home with a letter for {q:n}].",
          "When {p:n} came home to {town}, {q:n} was [waiting at the gate|standing at the window]. <<Well?>> {q:n} asked. <<[Done|Delivered],>> said {p:n}.")
    s.ask("Where did {p:n} have to go?", "{p:n} had to go to {town2}.")
    s.ask("Who was the {o_} for?", "It was for {r:n}.")
    s.ask("Who gave {p:n} the {o_}?", "{q:n} gave {p:n} the {o_}.")
    if s.rng.random() < 0.35:
        closing(s)


def noise(s):
    base(s)
    w = s.words
    w["kindnoise"] = s.pick(["a slow knocking", "a scratching sound", "a low humming", "something like footsteps", "a soft rattle", "a long sigh"])
    s.requests += ["Tell me a mystery story.", "Write a story about a strange noise.", "Tell a story about a sound in the night."]
    s.titles += ["the noise in the night", "the ghost of {town}", "what {p:n} heard"]
    opening(s)
    s.para()
    s.say("For {num} nights {p} had heard {kindnoise}. It came from the {l0}.", "Every night, [at midnight|when the clock struck two], there was {kindnoise} {at0}.",
          "It started on {date}: {kindnoise}, {at0}, [as soon as it was dark|long after midnight].")
    w["qq"] = meet_q(s)
    s.say("<<It is a ghost,>> said {qq}. <<There are no ghosts,>> said {p:n}, but [{p:u} locked the door|not very loudly].",
          "{p} told {qq} about it. <<You have been dreaming,>> said {q:n}. <<Then come and listen,>> said {p:n}.",
          "The people of {town} [talked of nothing else|had their own ideas]. {qq} thought it was [thieves|the wind|a ghost].")
    s.para()
    s.say("[The next night|That night] they took a {o}, [put on their boots|wrapped themselves in blankets] and [went to see|crept out of the house].",
          "So {p:n} and {q:n} sat up one night [with {food}|with one candle between them], and waited. {p:n} held a {o}, [just in case|for courage].")
    s.say("It was [very dark|so dark that they had to hold hands]. Then it came: {kindnoise}.", "They waited one hour, and then another. <<[There|Listen]!>> whispered {q:n}.")
    s.say("{q} wanted to run, but {p:n} [lifted the light|took one step, and then another].", "{p:s} knees [shook|were weak], but {p:u} went on, and {q:n} [came behind|held on to {p:S} sleeve].")
    w["cause"] = s.pick(["a {species}, caught by one foot in a loop of string", "a {species} with {num2} little ones", "a shutter that had come loose, and the wind was moving it",
                         "a {species} that wanted to get in out of the cold", "an old {x_} swinging on a nail", "water dripping into a tin {x_}"])
    s.thing("x")
    s.say("And what did they see? It was {cause}!", "{at0}, in the light of the candle, was {cause}.", "It was no ghost and no thief. It was only {cause}.")
    s.say("<<So that is our ghost!>> said {p:n}.", "They looked at each other and laughed until [it hurt|they had to sit down].", "{q} [let out a long breath|was almost disappointed]. <<Not a word about this,>> {q:n} said.")
    s.para()
    s.say("[After that|The next day] they [put things right|set it right], and {town} slept [in peace|well] again.", "In the morning {p:n} [told everyone the truth|put it right in {num} minutes].",
          "Some people in {town} still say it was a ghost, and {p:n} [lets them|does not argue].")
    s.ask("What made the noise?", "It was {cause}.")
    s.ask("Where did the noise come from?", "It came from the {l0}.")
    if s.rng.random() < 0.5:
        closing(s)


def contest(s):
    base(s)
    w = s.words
    r = s.cast("r", s.pick(["a newcomer from the city", "the mayor's favourite", "a show-off from the next valley", "last year's winner"]))
    w["event"], w["deed"] = s.pick([
        ("the great pie contest", "bake a pie"), ("the boat race", "row across the water"), ("the kite festival", "fly a kite"), ("the singing contest", "sing a song"),
        ("the pumpkin show", "grow a pumpkin"), ("the riddle evening", "answer riddles"), ("the snow sculpture contest", "build something out of snow"),
        ("the long race", "run to the {l0} and back"), ("the ploughing match", "plough a straight line"), ("the story contest", "tell a story")])
    s.requests += ["Tell me a story about a contest.", "Write a story about {event} in {town}.", "Tell a story about winning and losing."]
    s.titles += ["{event}", "the prize", "who won"]
    opening(s)
    s.para()
    s.say("Every {season} there was {event} in {town}, and the prize was a {o}.", "The prize at {event} that year was a {o}, [and everyone wanted it|and it shone in the window of the {l1}].")
    s.say("{p} had [tried|taken part] {num} times and had never won.", "{p} had never dared to take part. <<This time I will,>> {p:u} told {q:o}." if w["qknown"] else "This year {p} wanted to win.",
          "To win it, one had to {deed} better than anyone else.")
    s.say("But {r:n}, {r:d}, [had come too|was sure of winning]. <<Nobody here can beat me,>> {r:u} said.",
          "Everyone thought that {r:n} would win: {r:u} was {r:d}.")
    s.para()
    w["qq"] = meet_q(s)
    s.say("{p} practised every day, and {qq} helped.", "<<[Breathe slowly|Do not look at the others|One thing at a time],>> said {qq}, [who {qhabit}|the night before].")
    s.say("Then the day came. [The whole town was there|There were flags on every house].", "On the day itself {p:s} hands [shook|were cold], but {q:n} was in the front row.")
    end = s.pick(["win", "lose", "share"])
    if end == "win":
        s.say("{r:n} was good. {p:n} was better.", "{r:n} went first, and people clapped. Then it was {p:s} turn, and [it was so quiet that one could hear the flags|nobody breathed].")
        s.say("<<The winner,>> said the mayor, <<~is {p:n}!>> [And {q:n} shouted louder than anyone.|{q:n} threw a hat into the air.]")
        s.say("{p} took the {o} — and then [{p:u} did a strange thing|everyone was surprised]: {p:u} shook hands with {r:n} and said, <<You made me try harder.>>",
              "{r:n} [was the first to shake {p:S} hand|bit {r:us} lip, but came over]. <<Well done,>> {r:u} said.")
        s.ask("Who won the contest?", "{p:n} won.")
    elif end == "lose":
        s.say("{p} did [well|better than ever], but {r:n} did better still, and won the {o}.", "In the middle of it, {p:n} saw that {q:n} [had fallen|was in trouble], stopped and helped. So {r:n} won the {o}.")
        s.say("{p} was sad for [an hour|about a minute]. <<[You were wonderful|I am proud of you],>> said {q:n}.", "That evening there was a knock at the door. It was {r:n}, with the {o_}. <<[You should have this|This belongs to you],>> {r:u} said.")
        s.ask("Who won the contest?", "{r:n} won.")
    else:
        s.say("When it was over, the judges [talked for an hour|scratched their heads]. <<We cannot decide,>> they said. <<{p:n} and {r:n} are both the best.>>",
              "{p:n} and {r:n} finished at the same moment.")
        s.say("So they share the {o_}: {p:n} keeps it in {season}, and {r:n} for the rest of the year.", "<<Keep it,>> said {p:n}. <<No, you,>> said {r:n}. In the end they gave the {o_} to {q:n}.")
        s.ask("Who won the contest?", "{p:n} and {r:n} won together.")
    s.ask("What was the prize?", "The prize was a {o}.")
    closing(s)


def present(s):
    base(s, outdoors=True)
    w = s.words
    s.requests += ["Tell me a story about a birthday.", "Write a story about a present for {q:n}.", "Tell a story about a {o_} that is a present."]
    s.titles += ["a present for {q:n}", "the birthday", "the {o}"]
    opening(s)
    s.para()
    w["qq"] = meet_q(s)
    s.say("{qq} was going to have a birthday [on Friday|in three days|at the end of the week], and {p:n} had [nothing to give|forgotten all about it].",
          "In a week it would be {q:S} birthday. {p:n} wanted to give {q:o} something [special|that nobody else had]." if w["qknown"] else "Soon it would be the birthday of {qq}, and {p:n} wanted to give {q:o} something special.")
    w["wish"] = s.pick(["because {q:S} old one had been stolen", "for {q:n} had talked of nothing else since {season}", "since {q:n} had never owned one", "because {q:n} had lost one just like it long ago"])
    s.say("It had to be a {o}, {wish}.", "{p} knew what it should be: a {o}, {wish}.")
    s.say("But the one in the shop by the {l0} cost {num2} silver coins, and {p:s} purse was empty.", "But there was no such thing in {town}, not even {at0}.")
    s.para()
    way = s.pick(["made", "earned", "swapped"])
    if way == "made":
        s.say("<<Then I will make one,>> {p:u} said.", "So {p} [decided to make it|set to work].")
        s.say("The first try was [too small|crooked]. The second fell apart. The third was [almost right|good].", "{p} worked at night, {at1}, so that {q:n} would not see.")
        s.ask("How did {p:n} get the present?", "{p:n} made it.")
    elif way == "earned":
        s.say("So {p} looked for work. {p:u} [carried baskets|washed bottles|swept the floor] {at1} and [chopped wood|picked apples] for the neighbours.", "{p} got up at four and [carried milk|cleaned windows] until school began." if w["child"] else "{p} got up at four and [carried milk|cleaned windows] before work.")
        s.say("Coin by coin the purse filled, until there were {num2}.", "At the end of the week {p:u} counted the money: {num2} coins, and not one too many.")
        s.ask("How did {p:n} get the present?", "{p:n} earned the money for it.")
    else:
        s.thing("x")
        s.say("{p} looked around and saw {p:us} own {x}, which {p:u} loved. {p:n} [swallowed hard|took a deep breath] and carried it to the shop.", "There was only one thing of any worth: a {x}, {p:s} dearest possession.")
        s.say("<<I will take the {x_},>> said the shopkeeper, <<~and you may have the {o_}.>>", "The shopkeeper looked at the {x} for a long time, and then gave {p:o} the {o} for it.")
        s.ask("What did {p:n} give for the {o_}?", "{p:n} gave the {x} for it.")
    s.para()
    s.say("[On the morning of the birthday|When the day came], {p:n} put the {o_} beside {q:S} plate, [wrapped in newspaper|tied with a ribbon].", "There was {food} for the birthday, and beside it lay a parcel.")
    s.say("{q:n} opened it and [could not speak|gave a cry]. <<A {o}! How did you know?>>", "<<For me?>> said {q:n}, and [turned it over and over|held it up to the light].")
    s.say("<<I have a present for you too,>> said {q:n}, and it was [a {o}, exactly the same|the very thing that {p:n} had wished for]." if way != "swapped" else "<<But where is your {x_}?>> asked {q:n}. {p:n} only smiled, and {q:n} understood.",
          "It was the best birthday [that {town} had ever seen|for many years].", "<<It is the most beautiful {o_} in the world,>> said {q:n}.")
    s.ask("Whose birthday was it?", "It was {q:S} birthday.")
    s.ask("What was the present?", "It was a {o}.")
    if s.rng.random() < 0.5:
        closing(s)


def learn(s):
    base(s, child=None)
    w = s.words
    r = s.cast("r", s.pick(["an old master", "the oldest person in town", "a retired sailor", "a teacher with cold hands and a warm heart"]))
    w["skill"], w["fail"], w["ok"] = s.pick([
        ("to swim", "swallowed half the pond", "swam to the other side"), ("to play the violin", "made a sound like a cat on a fence", "played a tune that made people stop in the street"),
        ("to bake bread", "took a black brick out of the oven", "took out a golden loaf"), ("to row a boat", "went round in circles", "rowed straight to the island"),
        ("to juggle", "broke {num} eggs", "kept four apples in the air"), ("to skate", "sat down hard on the ice", "glided over the ice like a swallow"),
        ("to ride", "fell into the hedge", "rode twice around the field"), ("to read", "mixed up every letter", "read a whole page aloud"),
        ("to whistle", "blew until {p:us} cheeks hurt", "whistled like a blackbird"), ("to dance", "stepped on everyone's feet", "danced until the lamps went out")])
    s.requests += ["Tell me a story about learning {skill}.", "Write a story about a {who} who wants {skill}.", "Tell a story about not giving up."]
    s.titles += ["how {p:n} learned {skill}", "once more", "the lesson"]
    opening(s)
    s.para()
    s.say("There was one thing that {p} wanted: {skill}.", "More than anything, {p} wanted {skill}.", "<<I want {skill},>> {p:n} told everyone.")
    w["qq"] = meet_q(s)
    s.say("<<You?>> said {qq}, and laughed.", "{qq} said it was too [late|hard|difficult].", "<<Then ask {r:n},>> said {qq}.")
    s.say("In {town} lived {r:n}, {r:d}. <<Come tomorrow at six,>> {r:n} said, <<~[and do not be late|and bring a {o_}].>>", "So {p} went to {r:n}, {r:d}. <<It will take time,>> said {r:n}.")
    s.para()
    s.say("On the first day {p} {fail}.", "The first lesson was {at0}. {p:n} {fail}, and {q:n}, who was watching, [had to look away|bit on a glove].")
    s.say("<<Again,>> said {r:n}.", "{r:n} [did not laugh|only nodded]. <<Good,>> {r:u} said. <<Now you know one way that does not work.>>")
    s.say("On the second day it was [no better|worse]. On the third day {p:n} wanted to give up.", "{num} times {p} tried, and {num} times it went wrong.", "After a week {p} [threw the {o_} on the ground|sat down and cried].")
    s.say("<<I was worse than you,>> said {r:n}. <<For a whole year [they called me the {species}|my own mother left the room].>> That made {p:n} laugh, and {p:u} [got up|tried once more].",
          "<<Do not do it with your head,>> {r:n} told {p:o}. <<[Close your eyes|Think of nothing].>>")
    s.para()
    s.say("And then, on {date}, {p:n} {ok}.", "[One morning|All at once] it happened: {p:n} {ok}.")
    s.say("{r:n} [said nothing, but {r:us} eyes were wet|took off {r:us} hat].", "<<Again,>> said {r:n}, but [smiling|this time {r:u} smiled].", "{q:n} clapped until {q:us} hands were red. <<I take it all back!>> {q:n} cried.")
    s.ask("What did {p:n} want to learn?", "{p:n} wanted {skill}.")
    s.ask("Who taught {p:n}?", "{r:n} taught {p:n}.")
    if s.rng.random() < 0.6:
        closing(s)


def night_light(s):
    """Storm: something fails, somebody must do what has to be done."""
    base(s, outdoors=True)
    w = s.words
    w["job"], w["without"] = s.pick([
        ("the lamp in the lighthouse has gone out", "the boats will not find the harbour"), ("the dam is leaking", "the whole valley will be under water"),
        ("the bell rope has snapped", "nobody will hear the warning"), ("the ferry has come loose", "it will be smashed on the rocks"),
        ("the doctor's cart is stuck in the mud", "a sick child will be without help"), ("the sheep are still on the mountain", "they will freeze before morning"),
        ("the old people are still in the {l1}", "they will be cut off by the flood"), ("the gate of the canal is jammed", "the streets will be under water by dawn")])
    s.requests += ["Tell me a story about a storm.", "Write a story about a brave {who}.", "Tell a story about a long night in {town}."]
    s.titles += ["the storm", "a long night", "the night of the storm"]
    opening(s)
    s.para()
    w["when"] = one_day(s)
    s.say("{when}, a storm came up over {town}. [The sky turned green|The wind tore slates from the roofs|Thunder rolled over the hills].", "{when}, the wind began to blow, [and it did not stop|harder and harder].")
    w["qq"] = meet_q(s)
    s.say("Then {qq} [came running|burst in at the door]. <<{job}!>> {q:n} cried. <<If nobody goes, {without}!>>")
    s.say("{p} looked at the [rain|dark window]. {p:u} was afraid. <<I will go,>> {p:u} said.", "<<Somebody has to go,>> said {p:n}, and [took a {o} from the wall|reached for {p:us} boots].")
    s.para()
    s.say("The path [past|by way of] the {l0} was [a river|all mud]. Twice {p:n} fell, and twice {p:u} got up.", "At the {l0} a tree had come down, and {p:n} had to [crawl under it|climb over it] in the dark.")
    s.say("{q:n} came behind with [a rope|a lantern], shouting something that the wind [took away|swallowed].", "<<Go back!>> {p:n} shouted, but {q:n} [shook {q:us} head|only came closer].")
    s.say("At last they were there. With [cold fingers|all their strength], and with the help of [the {o}|a {o} that {q:n} had brought], they [worked|fought] for {num} hours.",
          "They used what they had: [a rope, a {o} and their bare hands|a {o} and two strong arms]. [It had to be enough|Hour after hour they held on].")
    s.say("[A little before dawn|Towards morning] it was done.", "When the wind dropped, [it was morning|the sky was pink], and [they had done it|the danger was over].")
    s.para()
    s.say("The people of {town} [brought them {food}|came up the path with blankets and {food}].", "<<You saved us,>> said the mayor. <<{q:n} did half of it,>> said {p:n}.", "{p:n} slept for a whole day. When {p:u} woke, {q:n} was sitting by the bed[ with {food}|, fast asleep].")
    s.say("{p} was given a medal, which {p:u} [keeps in a drawer|lost the same week]. The {o_} hangs over the door.", "<<Were you not afraid?>> the children asked. <<Very,>> said {p:n}.")
    s.ask("What did {p:n} and {q:n} use in the storm?", "They used a {o}.")
    s.ask("Who went with {p:n} into the storm?", "{q:n} went with {p:n}.")
    if s.rng.random() < 0.4:
        closing(s)


def map_treasure(s):
    base(s, outdoors=True)
    w = s.words
    w["inside"] = s.pick(["{num} old letters tied with a ribbon", "a {y}", "a note with the words <<Too late>>", "a handful of seeds", "{num} gold coins and a {y}", "the bones of a fish and a {y}", "a child's shoe and a {y}"])
    s.thing("y")
    s.requests += ["Tell me a story about a treasure.", "Write a story about an old map.", "Tell a story in which {p:n} finds something."]
    s.titles += ["the map", "the treasure of {town}", "what lay under the {l1}"]
    opening(s)
    s.para()
    w["when"] = one_day(s)
    s.say("{when}, inside an old {o_}, {p:n} found [a map|a folded paper with a map on it].", "{when} a map fell out of a {o} that {p:n} had bought {at0}.")
    s.say("It showed {town} as it had been [a hundred years ago|long ago]: the {l0}, the {l1}, and [a red cross|a small black star] beside the {l1}.",
          "There was the {l0}, there was the {l1}, and beside the {l1} somebody had drawn a cross.")
    w["qq"] = meet_q(s)
    s.say("{p} showed it to {qq}. <<A treasure!>> said {q:n}. <<Or a joke,>> said {p:n}.", "<<We must go at once,>> said {qq}, [who {qhabit}|putting on one boot].")
    s.para()
    s.say("They [took|borrowed] two spades and counted {num} steps from the {l1} [to the north|towards the setting sun].", "They began at the {l0}, as the map said, and walked [slowly|in a straight line] to the {l1}.")
    s.say("They dug [until noon|for hours]. {q:n} found [a bent spoon|a bottle], and {p:n} found [a worm|a great many stones].", "<<Deeper,>> said {p:n}. <<My back hurts,>> said {q:n}.")
    s.say("Then {p:S} spade [struck something hard|hit wood]. It was [a small iron box|a chest with a broken lock|a clay pot with a lid].", "And then there was a [dull|hollow] sound. {q:n} [knelt down|cleared the earth away]. It was a wooden box.")
    s.say("Inside was {inside}.", "{p} lifted the lid. In it lay {inside}.")
    s.para()
    s.say("{q:n} [laughed|was disappointed], but {p:n} [was not|looked at it for a long time]. <<Somebody [hid this|loved this] a hundred years ago,>> {p:u} said, <<~and we are the first to see it.>>",
          "They [looked at each other|sat on the edge of the hole]. <<What shall we do with it?>> asked {q:n}. <<[Put it back|Keep it safe],>> said {p:n}, <<~and draw a new map.>>",
          "It was not what they had hoped for. But [it was a fine day|the hole was already dug], and they planted an apple tree in it.")
    s.ask("Where was the treasure?", "It was beside the {l1}.")
    s.ask("What was inside?", "Inside was {inside}.")
    s.ask("Where did {p:n} find the map?", "The map was in the {o_}.")
    closing(s)


def letter(s):
    """A letter instead of a story: first person, so that 'I' has to be kept apart from the others."""
    base(s)
    w = s.words
    w["town2"] = s.pick([t for t in L.TOWNS if t != w["town"]])
    s.requests = ["Write a letter from {p:n} to {q:n}.", "Write a letter from {town}.", "Write a letter that mentions a {o_}."]
    s.titles = ["a letter from {town}"]
    r = s.cast("r", s.pick(["our neighbour", "the schoolteacher", "the new teacher", "the doctor here", "my friend"]))
    s.say("{town}, {date}")
    s.para()
    s.say("[Dear|My dear|Dearest] {q:n},")
    s.para()
    s.say("[thank you for your letter|I hope you are well|it is a long time since I wrote|you will laugh when you read this]. I have now been in {town} for {num} weeks[|, and I know every stone of it].")
    s.say("{scene}", "It is a {townkind}, and from my window I can see the {l0}.")
    s.say("I spend my days {doing}, [as always|which you know I like|and I am learning fast].", "In the mornings I am {at0}, and in the afternoons I [write|rest|go for walks].")
    s.para()
    s.say("[Yesterday|On Sunday|Last week] {r:n}, {r:d}, [brought me|gave me|sold me] a {o}. {r:u} [found it {at1}|did not want any money for it|said it was lucky].",
          "I must tell you about {r:n}, {r:d}. {r:u} is {rtrait}, and keeps a {species} called {pet} [in the kitchen|in the garden].")
    s.say("<<[What will you do with it|What is it for]?>> {r:n} asked me, and I [had no answer|said that it was for you].", "{r} is {rtrait}, and we [often eat {food} together|play cards in the evening|argue about everything].",
          "You would like {r:o}, I am sure.")
    s.maybe(0.6, "Once the {species} {sounded} all night, and in the morning we found it {at1}.", "Do you remember the {o} that we had as children? I think of it often.")
    s.para()
    s.say("[Please write soon|Tell me everything|Do come and see me in the {season}]. Is it true that you are going to {town2}?", "How is the weather in {town2}? Here it rains and rains, but I do not mind.", "I shall be in {town2} in {num2} days. Will you meet me {at2}?")
    s.para()
    s.say("Your [loving|old|faithful] friend,")
    s.para()
    s.say("{p:n}")
    s.questions = [("Who wrote the letter?", "{p:n} wrote it."), ("Who is the letter to?", "It is to {q:n}."),
                   ("Where was the letter written?", "It was written in {town}."), ("What is {r:n} like?", "{r:n} is {rtrait}.") ]
    if not any("is {}".format(w["rtrait"]) in x for para in s.paragraphs for x in para):
        s.questions.pop()


def garden(s):
    base(s, outdoors=True)
    w = s.words
    w["crop"] = s.pick(["beans", "sunflowers", "pumpkins", "strawberries", "tulips", "carrots", "jalapeño peppers", "cherry trees", "sweet peas", "potatoes"])
    s.requests += ["Tell me a story about a garden.", "Write a story about growing {crop}.", "Tell a story about waiting."]
    s.titles += ["the garden", "{p:n} and the {crop}", "{crop}"]
    opening(s)
    s.para()
    s.say("Behind {p:s} house was a piece of ground where nothing grew but [nettles|stones|thistles]. <<This year,>> {p:u} said, <<I will grow {crop}.>>",
          "{p} had [bought|been given] a bag of seeds {at0}. <<{crop}!>> said the label.")
    w["qq"] = meet_q(s)
    s.say("{qq} looked at the ground and [shook {q:us} head|laughed]. <<Nothing has ever grown there.>>", "<<I will help you dig,>> said {qq}, [and did|and brought a {o}].")
    s.say("{p} dug for {num} days, carried away the stones and put the seeds into the earth, one by one.", "They dug, they raked, and they planted {num2} rows of {crop}.")
    s.para()
    s.say("Then they waited. One week went by, and another. Nothing happened.", "Every morning {p} went out to look, and every morning the ground was bare.")
    w["woe"], w["help"] = s.pick([
        ("there was no rain", "{p:n} and {q:n} carried water from the {l0}, bucket by bucket"), ("a {species} got in and dug everything up", "{p:n} built a fence, and {q:n} gave the {species} {treat}"),
        ("snails ate the first green leaves", "{q:n} collected them by night with a lamp, and {p:n} carried them to the {l0}"), ("late frost came", "{p:n} covered every plant with straw and sat up all night"),
        ("a storm flattened everything", "{q:n} brought sticks and string, and {p:n} tied up each plant")])
    s.say("[Worse|As if that were not enough], {woe}. So {help}.", "Then {woe}. {p:n} [did not give up|wanted to cry], but {help}.")
    s.maybe(0.5, "<<Patience,>> said {q:n}.", "<<I told you so,>> said the neighbours.")
    s.para()
    s.say("And one morning [in June|after rain], there it was: a small green point.", "<<Come quickly!>> {p:n} called [one morning|at last]. <<Look!>>")
    s.say("By the end of summer there were so many {crop} that {p:n} could [give some to everyone in {town}|not see over them].", "Such {crop} had never been seen in {town}. [Even the mayor came to look.|People came from {num2} miles away.]")
    s.say("{p} gave the [first|best] ones to {q:n}.", "{q:n} [had to admit it|said it aloud]: <<I was wrong.>>", "The next year {q:n} planted {crop} too.")
    s.ask("What did {p:n} grow?", "{p:n} grew {crop}.")
    s.ask("What went wrong in the garden?", "[{woe}|Once {woe}].")
    if s.rng.random() < 0.5:
        closing(s)


def facts(s):
    """A short description with numbers and comparisons instead of a story."""
    base(s)
    w = s.words
    doing, did = w["doing"], w["did"]
    s.requests = ["Describe {town}.", "Tell me about {town}.", "What is {town} like?"]
    s.titles = ["{town}", "about {town}"]
    w["pop"] = s.pick(L.NUMBERS)
    s.say("{town} is a {townkind} [on the coast|in the hills|on the river|at the edge of a great forest]. It has {pop} hundred people, {num} streets and one {l0}.",
          "The {townkind} of {town} lies [between the sea and the hills|in a green valley]. About {pop} hundred people live there.")
    s.say("The oldest building is the {l0}; it was built {num2} hundred years ago.", "Visitors go to the {l0} first, and then to the {l1}.", "In the middle is the {l1}, and everything else is {num2} minutes away.")
    s.say("In {season} [it rains a good deal|the streets are full of visitors|one can hear the sea from every house]. {scene}")
    s.para()
    if not w["child"]:
        s.say("The town is known for its {wares}. The {trade}, {p:n}, has worked there for {num3} years.", "There is one {trade} in {town}: {p:n}, who {phabit}.")
        s.say("{p:s} {kin}, {q:n}, helps in the {work} and {qhabit}.", "{p} sells {wares} in the {work}, and {q:d} {q:n} keeps the accounts.")
    else:
        s.say("The school has {num3} children. One of them is {p:n}, a {ptrait} {who} who loves {doing}.")
        s.say("{p:s} {kin}, {q:n}, is {qtrait}.")
    s.say("On market day one can buy {food} {at1}, and somebody always plays [the accordion|the violin].", "Nobody in {town} is in a hurry, except for a {species} called {pet}, which belongs to {p:n}.",
          "If you go there, [eat {food}|ask for {food}] and say hello to {p:n}.")
    s.maybe(0.5, "Near the {l2} there is a small museum. Its only treasure is a {o}.", "The inn is called the [Golden|Blue|Old] {species}.")


def supper(s):
    """Three guests bring three dishes: who brought what is asked again at the end."""
    base(s)
    w = s.words
    r = s.cast("r", s.pick(["the postmistress", "the old captain", "the new neighbour", "the doctor", "the violin teacher"]))
    if "mistress" in r.description and r.gender == "he":
        r.description = "the postman"
    t = s.cast("t", s.pick(["the miller", "the schoolteacher", "a cousin from the city", "the ferry driver", "the mayor"]))
    w["f1"], w["f2"], w["f3"] = s.rng.sample(L.FOODS, 3)
    w["why"] = s.pick(["it was {p:S} birthday", "the harvest was in", "the roof was mended at last", "the first snow had fallen", "it was the shortest day of the year", "there was nothing else to do in {town}"])
    s.requests += ["Tell me a story about a supper.", "Write a story about friends who eat together.", "Tell a story with {f1} in it."]
    s.titles += ["the supper", "three guests", "a table for four"]
    opening(s)
    s.para()
    w["qq"] = meet_q(s)
    s.say("One evening {p} invited {qq}, {r:d} {r:n} and {t:d} {t:n} to supper, because {why}.",
          "Since {why}, {p:n} asked three people to supper: {qq}, {r:d} {r:n}, and {t:d} {t:n}.")
    s.say("<<Everyone brings something,>> {p:n} had said.", "The table was small, [and one chair had only three legs|and there were only three spoons], but nobody minded.")
    s.para()
    s.say("{q:n} came first and brought {f1}.", "The first was {q:n}, with {f1}, [still warm|wrapped in a cloth].")
    s.say("Then came {r:n}, [red with cold|out of breath|singing], with {f2}.", "{r:n} had made {f2}. <<[It is my grandmother's recipe|I hope there is enough],>> {r:n} said.")
    s.say("Last came {t:n}, [an hour late|who had lost the way], and put {f3} on the table.", "{t:n} brought {f3} [under one arm|in a basket], and a {o} [for luck|as a present for {p:n}].")
    s.para()
    s.say("They [ate and talked|laughed and ate] until the candles were low. {q:n} told a story about [a bear|a ship|a wedding], and {r:n} [did not believe a word of it|knew a better one].",
          "When everybody had eaten, {t:n} [sang|played the violin|fell asleep in the chair], and {q:n} danced with {r:n}.",
          "<<What was best?>> asked {p:n}. {r:n} said it was the dish that {q:n} had brought, and {q:n} said it was {r:S}.")
    s.say("In the end there was [nothing left|only a crumb left], and {pet} the {species} got that.", "The next morning {p} found {t:S} hat under the table and {pet} the {species} asleep in it.")
    s.ask("What did {q:n} bring?", "{q:n} brought {f1}.")
    s.ask("Who brought {f2}?", "{r:n} brought {f2}.")
    s.ask("What did {t:n} bring to the supper?", "{t:n} brought {f3}.")
    if s.rng.random() < 0.4:
        closing(s)


def fable(s):
    """Two animals that speak, and a moral."""
    base(s)
    w = s.words
    a, b = s.rng.sample(L.ANIMALS, 2)
    w["a"], w["asound"], w["aact"], w["afood"] = a[0], a[1], a[3], a[4]
    w["b"], w["bsound"], w["bact"], w["bfood"] = b[0], b[1], b[3], b[4]
    (w["at"], w["ah"]), (w["bt"], w["bh"]) = s.rng.sample(L.TRAITS, 2)
    w["lesson"] = s.pick(["two can carry what one cannot", "a small help at the right time is a great help", "it is better to ask than to guess",
                          "who shares, eats twice", "nobody is too small to be useful", "a promise is heavier than a stone", "pride makes a thin supper"])
    s.requests = ["Tell me a fable.", "Tell me a fable about a {a} and a {b}.", "Write a story in which animals speak."]
    s.titles = ["the {a} and the {b}"]
    s.questions = []
    s.say("A {a} and a {b} lived [near|not far from] the {l0}. The {a} was {at} and {ah}; the {b} was {bt} and {bh}.",
          "Once, {at0}, a {at} {a} met a {bt} {b}.", "There was once a {a} who {ah}, and a {b} who {bh}.")
    s.maybe(0.5, "{scene}", "It was {date}, and food was hard to find.")
    s.para()
    s.say("One day the {a} found {bfood}. <<What am I to do with this?>> said the {a}. <<I would rather have {afood}.>>",
          "<<I am hungry,>> said the {a}. <<I would give anything for {afood}.>>")
    s.say("The {b} {bact}. <<I know where there is {afood},>> said the {b}, <<~but it is [on the other side of the water|too high for me|behind a wall].>>",
          "<<[Come with me|Follow me],>> said the {b}. <<{at1} I saw {afood}.>>")
    s.say("<<Then [take me there|show me],>> said the {a}, <<~and I will [help you|carry you on my back|keep watch].>>", "The {a} {aact}. <<Why should I trust a {b}?>> <<Because [I am too tired to lie|nobody else is here],>> said the {b}.")
    s.para()
    s.say("So they went [together|side by side] to the {l1}. The {a} [pushed|pulled] and the {b} [held on|climbed up], and after a while the food [fell down|was theirs].",
          "It was a long way. When the {b} was tired, the {a} sang; when the {a} was afraid, the {b} told jokes.")
    if s.rng.random() < 0.6:
        s.say("The {a} ate {afood}, and the {b} got {bfood}, and both were content.", "They shared it fairly: {afood} for the {a}, and {bfood} for the {b}.")
    else:
        s.say("But the {b} ate everything alone and ran away. That night it was cold, and the {b} had nobody to [lie beside|talk to]. In the morning it came back and said, <<I am sorry.>>",
              "But the {a} wanted everything. They pulled and pulled, until it fell into the water, and neither of them had anything.")
    s.say("[That is why they say|And so we see|The {a} never forgot] that {lesson}.", "<<You see,>> said the {b}, <<~{lesson}.>>", "Remember: {lesson}.")
    s.ask("Which animals are in the fable?", "A {a} and a {b}.")
    s.ask("What is the moral of the fable?", "The moral is that {lesson}.")
    s.ask("What did the {a} want to eat?", "The {a} wanted {afood}.")


def train(s):
    """A journey in one compartment: three strangers, three things, three places."""
    base(s)
    w = s.words
    others = [t for t in L.TOWNS if t != w["town"]]
    w["t1"], w["t2"], w["t3"] = s.rng.sample(others, 3)
    s.thing("x")
    s.thing("y")
    r = s.cast("r", "the stranger by the window")
    w["woman"] = "woman" if r.gender == "she" else "man"
    s.requests += ["Tell me a story about a train.", "Write a story about people who meet on a train.", "Tell a story that begins in {town} and ends in {t1}."]
    s.titles += ["the night train", "the train to {t1}", "strangers on a train"]
    opening(s)
    s.para()
    w["when"] = one_day(s)
    w["qq"] = meet_q(s)
    s.say("{when} {p} took the train from {town} to {t1}, where {qq} was waiting.", "{when}, {p:n} got on the train to {t1}, where {qq} had gone a week before.")
    s.say("In the bag was a {o}, [carefully wrapped|which nobody was allowed to see].", "{p} had packed [too much|almost nothing]: a {o}, a clean shirt and {food}.")
    s.say("By the window sat [an old|a young|a tired] {woman} with a {x} on {r:us} knees. <<I am going to {t2},>> {r:u} said. <<My name is {r:n}.>>",
          "Across from {p:o} sat {r:n}, [an old|a young|a very tall] {woman} on the way to {t2}, who was holding a {x}.")
    s.say("<<What a strange {x_}!>> said {p:n}. <<[It was my father's|I found it on a beach|It is for my daughter],>> said {r:n}. <<And what do you have there?>> <<Only a {o_},>> said {p:n}.",
          "They began to talk. {r:n} was {rtrait} and {rhabit}, and [the hours went by|before they knew it the sun was setting].")
    s.para()
    s.say("At {t3} the train stopped for {num} hours, because [there was snow on the line|a cow stood on the rails|the driver had fallen asleep]. {p:n} shared {food} with {r:n}.",
          "Suddenly it was dark: a tunnel. When the light came back, the {x_} was gone. It had [rolled under the seat|fallen behind the bag], and {p:n} found it.")
    s.say("In {t2} {r:n} got off. <<[Good luck|Goodbye], {p:n},>> {r:u} called. <<And take care of your {o_}!>>", "When the train came to {t2}, {r:n} stood up. <<Keep the {x_},>> {r:u} said. <<You need it more than I do.>>")
    s.para()
    s.say("In {t1} {q:n} was on the platform. <<Was it a long journey?>> <<No,>> said {p:n}, <<~I had good company.>>", "{q:n} had been waiting in {t1} for {num2} hours. <<At last!>> {q:n} cried, and took the bag.")
    s.maybe(0.6, "A year later a letter came from {t2}. It was signed: {r:n}.", "{p} never saw {r:n} again, but whenever a train goes by, {p:u} waves.")
    s.ask("Where did {r:n} get off?", "{r:n} got off in {t2}.")
    s.ask("What did {p:n} have in the bag?", "A {o}.")
    s.ask("What was {r:n} holding?", "{r:n} was holding a {x}.")
    s.ask("Where was {p:n} going?", "{p:n} was going to {t1}.")


def diary(s):
    """First person, three days; the weather and one trouble go on from day to day."""
    base(s)
    w = s.words
    s.requests = ["Write a page from a diary.", "Write the diary of a {who} in {town}.", "Write a diary about a lost {o_}."]
    s.titles = ["from the diary of {p:n}"]
    w["d0"] = s.pick(["on Monday", "on Tuesday"])
    s.say("Monday. [Rain again|Sun at last|Fog until noon]. I [woke early|slept badly|got up late] and had {food} for breakfast. My {kin} {q:n} [came by|is still asleep|sent a note].")
    s.say("[In the afternoon|Later] I went to the {l0}, and [lost my {o_}|forgot my {o_} there]. I am very [cross|sad] about it; it was a {o}, and I had had it for {num} years.",
          "{q:n} asked me where my {o} was, and I could not find it. I think that I left it {at0}.")
    s.para()
    s.say("Tuesday. [Still raining|A clear sky|Wind from the north]. I {did} all morning, but I could not stop thinking of the {o_}.",
          "Tuesday. I went back to the {l0} and asked everyone. Nobody has seen a {o}.")
    s.say("{q:n} says I should [buy a new one|forget it]. {q:n} does not understand.", "{q:n}, who {qhabit}, offered to help. We looked {at1} too, but in vain.")
    s.para()
    w["found"] = s.pick(["{pet} the {species} was sitting on it", "it had been in my own pocket all the time", "a child brought it to the door", "{q:n} found it {at2}", "it was hanging on the gate this morning"])
    s.say("Wednesday. The {o_} is here again! {found}.", "Wednesday. I must write this down at once: {found}!")
    s.say("I was so happy that I [danced with {q:n}|gave {q:n} a kiss|laughed out loud]. We had {food} to celebrate.", "{q:n} laughed at me, and I laughed too. [Tomorrow I shall tie it to my belt.|I shall never be cross again. Well, not before Friday.]")
    s.questions = [("What was lost?", "A {o} was lost."), ("How was the {o_} found again?", "[{found}.|This is how: {found}.]"), ("Who is {q:n}?", "{q:n} is the writer's {kin}.")]


ALL = [lost_thing, lost_thing, stranger, trade_chain, trade_chain, broken_promise, rescue, quarrel, delivery, delivery,
       noise, contest, present, present, learn, night_light, map_treasure, letter, garden, facts, supper, supper, fable, train, diary]
