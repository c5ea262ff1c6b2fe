# lexicon.py owns the words of the demo corpus: names, trades, places, things, animals, food and
# weather, as plain tables. It holds no grammar (stories.py) and no plots (plots.py). Everything
# here was written for this project, so the corpus carries the project's own licence.
#
# Some names are held out: they occur in a third of the held-out documents and never in training, so
# that the held-out perplexity also prices names that the model has never seen.

SHE = """Mira Ana Clara Elsa Nora Ida Tess Wren Hazel Iris Lena Marta Rosa Sofia Greta Ingrid Petra
Dora Edith Flora Gwen Hilda Isla June Kezia Lucy Mabel Nell Olive Pearl Ruth Sybil Tilda Una Vera
Willa Yara Zoë Chloé Renée Anaïs Amina Fatima Leila Noor Priya Asha Meera Lakshmi Mei Yuki Hana Sakura
Nadia Olga Irina Katya Ximena Inés Pilar Lucía Carmen Beatriz Freya Astrid Sigrid Maeve Niamh Bronwyn
Ottilie Agnes Bess Cora Della Effie""".split()

HE = """Tom Jonas Felix Oskar Emil Anton Bram Caleb Dov Edgar Finn Gus Henry Ivan Jasper Karl Leo Milo
Ned Otto Paul Quentin Rufus Silas Theo Ulric Victor Walter Yusuf Zeke André Noël Jérôme Søren Björn
Omar Hassan Karim Samir Ravi Arjun Kiran Dev Hiro Kenji Taro Wei Bo Mateo Diego Rafael Tomás Andrés
Luca Marco Pietro Dario Owen Rhys Ewan Callum Angus Declan Piotr Mikhail Boris Stefan Anders Nils
Barnaby Cyril Dunstan Elias Gideon""".split()

HELD_SHE = "Saoirse Thea Bruna Esmé Mathilde Ginevra".split()
HELD_HE = "Lorcan Ansel Benoît Casper Torsten Idris".split()

# trade: (noun, workplace, tool, wares, what the hands do -ing, same in the past)
TRADES = [
    ("baker", "bakery", "rolling pin", "loaves of bread", "kneading dough", "kneaded dough"),
    ("clockmaker", "clock shop", "tiny screwdriver", "clocks", "oiling small wheels", "oiled small wheels"),
    ("weaver", "weaving room", "wooden shuttle", "blankets", "weaving wool", "wove wool"),
    ("potter", "pottery", "wet sponge", "bowls and jugs", "shaping clay", "shaped clay"),
    ("blacksmith", "forge", "heavy hammer", "horseshoes", "hammering iron", "hammered iron"),
    ("gardener", "garden", "spade", "roses", "pulling weeds", "pulled weeds"),
    ("fisherman", "boat shed", "patched net", "fish", "mending nets", "mended nets"),
    ("tailor", "tailor's shop", "silver needle", "coats", "sewing long seams", "sewed long seams"),
    ("carpenter", "workshop", "sharp plane", "chairs", "sawing planks", "sawed planks"),
    ("beekeeper", "honey house", "smoke can", "jars of honey", "tending the hives", "tended the hives"),
    ("miller", "mill", "flour scoop", "sacks of flour", "grinding corn", "ground corn"),
    ("painter", "studio", "long brush", "paintings", "mixing colours", "mixed colours"),
    ("teacher", "school", "piece of chalk", "lessons", "correcting spelling", "corrected spelling"),
    ("doctor", "surgery", "black bag", "medicines", "rolling bandages", "rolled bandages"),
    ("librarian", "library", "rubber stamp", "books", "sorting old books", "sorted old books"),
    ("shoemaker", "shoe shop", "curved awl", "boots", "stitching leather", "stitched leather"),
    ("candle maker", "candle shop", "copper pot", "candles", "melting wax", "melted wax"),
    ("glassblower", "glassworks", "long iron pipe", "bottles", "blowing glass", "blew glass"),
    ("shepherd", "sheep shed", "crooked staff", "wool", "counting sheep", "counted sheep"),
    ("ferryman", "ferry house", "long oar", "tickets", "rowing people across the water", "rowed people across the water"),
    ("lighthouse keeper", "lighthouse", "oil can", "charts", "polishing the great lamp", "polished the great lamp"),
    ("innkeeper", "inn", "ring of keys", "hot suppers", "making up beds", "made up beds"),
    ("postman", "post office", "leather bag", "letters", "sorting letters", "sorted letters"),
    ("violin maker", "violin shop", "little knife", "violins", "carving thin wood", "carved thin wood"),
    ("cheesemaker", "dairy", "wooden paddle", "round cheeses", "stirring warm milk", "stirred warm milk"),
    ("bookbinder", "bindery", "bone folder", "notebooks", "folding paper", "folded paper"),
    ("stonemason", "stone yard", "chisel", "carved stones", "cutting stone", "cut stone"),
    ("basket maker", "willow shed", "pruning knife", "baskets", "bending willow", "bent willow"),
    ("cook", "kitchen", "big ladle", "pies", "chopping onions", "chopped onions"),
    ("sailmaker", "sail loft", "curved needle", "sails", "stitching canvas", "stitched canvas"),
    ("map maker", "map room", "brass compass", "maps", "drawing coastlines", "drew coastlines"),
    ("toy maker", "toy shop", "pot of red paint", "wooden horses", "painting small faces", "painted small faces"),
    ("piano tuner", "music shop", "tuning fork", "sheet music", "tightening strings", "tightened strings"),
    ("jeweller", "jewellery shop", "tiny pair of pliers", "rings", "setting small stones", "set small stones"),
    ("printer", "print shop", "tray of letters", "posters", "setting type", "set type"),
    ("tea merchant", "tea house", "set of scales", "tins of tea", "weighing dark leaves", "weighed dark leaves"),
    ("barber", "barber's shop", "pair of scissors", "soap", "trimming beards", "trimmed beards"),
    ("astronomer", "observatory", "telescope", "star charts", "counting stars", "counted stars"),
    ("cobbler", "cobbler's shop", "small hammer", "slippers", "nailing soles", "nailed soles"),
    ("waiter", "café", "round tray", "cups of coffee", "carrying cups", "carried cups"),
]

HOBBIES = [
    ("collecting shells", "collected shells"), ("climbing trees", "climbed trees"),
    ("drawing birds", "drew birds"), ("building little boats", "built little boats"),
    ("reading by the window", "read by the window"), ("flying kites", "flew kites"),
    ("asking questions", "asked questions"), ("playing the flute", "played the flute"),
    ("catching frogs", "caught frogs"), ("pressing flowers", "pressed flowers"),
    ("telling riddles", "told riddles"), ("whistling old songs", "whistled old songs"),
    ("looking for fossils", "looked for fossils"), ("skipping stones", "skipped stones"),
    ("watching trains", "watched trains"), ("drawing maps", "drew maps"),
]

TOWNS = """Eldmoor Harrow Bay|Saltmarsh|Thornbury|Penwick|Ashford|Little Fenn|Kestrel Point|Marrow Hill|
Greywater|Oakhollow|Saint Brannoc|Lindenau|Vallée|Port Amber|Whitby Cross|Dunmore|Fallow End|Ravensgate|
Tidewater|Copper Lane|Birchwood|Low Meadow|Stonebridge|Wickham|Larkfield|Heronsea|Moss Green|Arrow Creek|
Bellhaven|Corriemuir|San Telmo|Elmstead|Drumlin|Frostholm|Juniper Flats""".replace("\n", "").replace("Eldmoor ", "Eldmoor|").split("|")
TOWN_KINDS = ["village", "small town", "quiet village", "fishing village", "market town", "mountain village", "harbour town", "windy little town"]

# (noun phrase without article, "at" phrase); the last five are indoors
LANDMARKS = [
    ("old mill", "behind the old mill"), ("stone bridge", "under the stone bridge"),
    ("well", "beside the well"), ("harbour wall", "on the harbour wall"),
    ("church tower", "at the top of the church tower"), ("orchard", "in the orchard"),
    ("market square", "in the market square"), ("ferry landing", "at the ferry landing"),
    ("pine wood", "at the edge of the pine wood"), ("railway station", "at the railway station"),
    ("graveyard", "by the graveyard gate"), ("bandstand", "under the bandstand"),
    ("duck pond", "near the duck pond"), ("schoolhouse", "behind the schoolhouse"),
    ("town hall", "on the steps of the town hall"), ("ruined castle", "inside the ruined castle"),
    ("quarry", "at the bottom of the quarry"), ("waterfall", "behind the waterfall"),
    ("crossroads", "at the crossroads"), ("windmill", "below the windmill"),
    ("beach", "on the beach"), ("hollow oak", "inside the hollow oak"),
    ("bakery steps", "on the bakery steps"), ("café", "outside the café"),
    ("fountain", "beside the fountain"), ("post office", "in front of the post office"),
    ("vineyard", "between the rows of the vineyard"), ("boathouse", "in the boathouse"),
    ("greenhouse", "in the greenhouse"), ("hay barn", "in the hay barn"),
    ("cellar", "down in the cellar"), ("attic", "up in the attic"),
]

# (noun, adjectives that fit)
OBJECTS = [
    ("lantern", "brass green old rusty"), ("key", "iron silver tiny heavy"), ("compass", "brass cracked old golden"),
    ("music box", "painted small blue broken"), ("pocket watch", "silver golden scratched old"),
    ("umbrella", "yellow black torn red"), ("scarf", "woollen red striped green"), ("teapot", "blue chipped copper white"),
    ("violin", "dark old small fine"), ("kite", "red paper yellow torn"), ("map", "faded folded old torn"),
    ("ring", "silver thin golden plain"), ("whistle", "tin wooden silver loud"), ("bell", "bronze small cracked silver"),
    ("basket", "willow round large blue"), ("book", "leather thick green dusty"), ("mirror", "round silver cracked small"),
    ("hat", "straw black tall purple"), ("coat", "grey patched heavy velvet"), ("spoon", "wooden silver long bent"),
    ("drum", "tin red little battered"), ("doll", "wooden painted cloth little"), ("boat", "wooden toy white leaky"),
    ("candlestick", "brass heavy tall silver"), ("button", "pearl blue golden wooden"), ("coin", "gold foreign bent silver"),
    ("flute", "bamboo silver thin wooden"), ("box", "locked cedar small black"), ("letter", "sealed yellowed unopened long"),
    ("blanket", "quilted warm blue patched"), ("ladder", "long wooden shaky green"), ("jar", "glass clay tall empty"),
    ("telescope", "brass dented long old"), ("knife", "folding blunt small bone"), ("feather", "white blue long spotted"),
    ("wheelbarrow", "rusty green squeaky old"), ("bicycle", "red rusty tall black"), ("mug", "clay cracked blue huge"),
    ("necklace", "amber glass pearl long"), ("marble", "green glass cloudy red"), ("paintbrush", "thin worn soft new"),
    ("photograph", "faded small framed torn"), ("gloves", ""), ("stone", "round striped white smooth"),
    ("rope", "thick long frayed tarred"), ("saddle", "worn brown fine leather"), ("clock", "tall wooden ticking brass"),
    ("cup", "china silver cracked golden"), ("pipe", "clay carved long black"), ("ball", "leather red rubber patched"),
    ("chair", "rocking carved three-legged blue"), ("crown", "paper tin golden crooked"), ("bucket", "tin wooden leaky blue"),
    ("notebook", "red secret thick small"), ("pumpkin", "striped huge orange little"), ("rug", "woven red worn round"),
]
OBJECTS = [(n, a.split()) for n, a in OBJECTS if a]

# (species, sound in the past, sound noun, small act in the past, food)
ANIMALS = [
    ("dog", "barked", "bark", "wagged its tail", "a bone"), ("cat", "purred", "purr", "licked its paw", "a saucer of cream"),
    ("goat", "bleated", "bleat", "chewed a rope", "an old cabbage"), ("donkey", "brayed", "bray", "flicked its ears", "a carrot"),
    ("crow", "cawed", "caw", "tilted its head", "a crust"), ("goose", "honked", "honk", "flapped its wings", "a handful of corn"),
    ("fox", "yelped", "yelp", "trotted in a circle", "a bit of cheese"), ("hedgehog", "snuffled", "snuffle", "curled into a ball", "a slice of pear"),
    ("otter", "chirped", "chirp", "rolled on its back", "a small fish"), ("owl", "hooted", "hoot", "blinked its yellow eyes", "a scrap of meat"),
    ("pony", "whinnied", "whinny", "stamped its hoof", "an apple"), ("rabbit", "squeaked", "squeak", "twitched its nose", "a leaf of lettuce"),
    ("parrot", "screeched", "screech", "ruffled its feathers", "a walnut"), ("mouse", "squeaked", "squeak", "washed its whiskers", "a crumb of cake"),
    ("seagull", "cried", "cry", "hopped sideways", "a piece of herring"), ("sheep", "bleated", "bleat", "shook its wool", "a bunch of clover"),
    ("badger", "grunted", "grunt", "scratched at the earth", "a fat worm"), ("squirrel", "chattered", "chatter", "flicked its tail", "a hazelnut"),
    ("cow", "mooed", "moo", "swished its tail", "a heap of hay"), ("duck", "quacked", "quack", "shook the water off its back", "a bit of bread"),
]
PETS = """Button Biscuit Pepper Clover Bramble Thimble Pickle Mustard Juniper Smudge Captain Admiral Duchess
Pudding Acorn Cinder Domino Nutmeg Tansy Whisker Bandit Marmalade Professor Crumb Pebble""".split()

FOODS = """a bowl of onion soup|fresh bread and butter|an apple pie|hot chestnuts|a plate of pancakes|
a pot of lentil stew|honey cakes|a slice of plum tart|roast potatoes|mushroom soup|a crème caramel|
warm gingerbread|a cheese omelette|fish stew|cherry jam on toast|a pear and walnut cake|black tea with lemon|
hot chocolate|ginger biscuits|a jug of cider|rice with saffron|dumplings|barley broth|cold ham and pickles|
a bowl of porridge|rhubarb crumble""".replace("\n", "").split("|")

TRAITS = [  # (adjective, what others say of such a person, in the past)
    ("patient", "never hurried anything"), ("stubborn", "never gave up an idea"), ("curious", "opened every door"),
    ("shy", "spoke only when it was needed"), ("cheerful", "sang while working"), ("careful", "checked everything twice"),
    ("proud", "did not like to ask for help"), ("kind", "could not walk past anyone in trouble"),
    ("forgetful", "lost something every day"), ("clever", "could mend almost anything"), ("brave", "was not afraid of the dark"),
    ("quiet", "listened more than most"), ("restless", "could not sit still"), ("honest", "could not keep a lie for an hour"),
    ("thrifty", "never threw away a piece of string"), ("gentle", "never raised a hand or a voice"),
    ("naïve", "believed whatever anyone said"), ("grumpy", "complained about the weather every morning"),
    ("dreamy", "looked at the clouds too long"), ("bold", "jumped first and looked afterwards"),
]

SEASONS = [
    ("spring", ["the first warm morning of spring", "a wet day in April", "an evening in May"], ["The blackbirds were singing in the hedges.", "The lanes smelled of rain and new grass.", "Blossom lay on the roofs like late snow."]),
    ("summer", ["a hot day in July", "the longest day of the year", "a dusty afternoon in August"], ["Bees hummed over the walls.", "The air above the road shook with heat.", "Even the dogs lay in the shade."]),
    ("autumn", ["a windy day in October", "the last week of harvest", "a grey morning in November"], ["Leaves blew along the street.", "Smoke stood above every chimney.", "The fields were bare and brown."]),
    ("winter", ["a cold night in December", "the week before New Year", "a frosty morning in January"], ["Snow lay deep against the doors.", "The pond was frozen from edge to edge.", "Ice hung from every gutter."]),
]

KIN_ADULT = [("sister", "she"), ("brother", "he"), ("cousin", None), ("neighbour", None), ("best friend", None), ("old friend", None),
             ("daughter", "she"), ("son", "he"), ("apprentice", None), ("niece", "she"), ("nephew", "he"), ("aunt", "she"), ("uncle", "he"),
             ("wife", "she"), ("husband", "he")]
KIN_CHILD = [("sister", "she"), ("brother", "he"), ("cousin", None), ("best friend", None), ("mother", "she"), ("father", "he"),
             ("grandmother", "she"), ("grandfather", "he"), ("aunt", "she"), ("uncle", "he"), ("neighbour", None)]

NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()
