"""People, places and things of the stories, and their compatibility."""

from __future__ import annotations

from dataclasses import dataclass


def with_article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def words(text: str) -> list[str]:
    """Split a list into words, or into phrases if it contains commas."""
    return text.split(", " if "," in text else None)


@dataclass(frozen=True)
class Noun:
    """A value of a fact that is written unchanged."""

    text: str

    def form(self, form: str) -> str:
        """Return a form: "" (the plain text), "a" (with its article) or "A" (the same, capitalized)."""
        if form == "":
            return self.text
        if form in ("a", "A"):
            phrase = with_article(self.text)
            return phrase.capitalize() if form == "A" else phrase
        raise KeyError(form)


@dataclass(frozen=True)
class Name(Noun):
    """A character's name, which determines the pronoun."""

    female: bool = False

    def form(self, form: str) -> str:
        if form.lower() in PRONOUNS:
            word = PRONOUNS[form.lower()][self.female]
            return word.capitalize() if form[0].isupper() else word
        return super().form(form)


PRONOUNS = {
    "he": ("he", "she"),
    "him": ("him", "her"),
    "his": ("his", "her"),
    "himself": ("himself", "herself"),
}


@dataclass(frozen=True)
class StoryPlace(Noun):
    """A place, such as "pond": its preposition ("by"), hiding places, and obstacles that things get stuck in."""

    preposition: str = "in"
    spots: tuple[str, ...] = ()
    snags: tuple[str, ...] = ()

    def form(self, form: str) -> str:
        if form == "":
            return f"the {self.text}"
        if form == "The":
            return f"The {self.text}"
        if form == "at":
            return f"{self.preposition} the {self.text}"
        if form == "noun":
            return self.text
        return super().form(form)


@dataclass(frozen=True)
class Thing(Noun):
    """An object to hold, with an adjective that it keeps through the story."""

    noun: str = ""

    def form(self, form: str) -> str:
        return self.noun if form == "noun" else super().form(form)


@dataclass(frozen=True)
class Skill(Noun):
    """A skill to learn: "swim", "swimming", and the places where it can be learned (none: anywhere)."""

    doing: str = ""
    places: tuple[str, ...] = ()

    def form(self, form: str) -> str:
        return self.doing if form == "ing" else super().form(form)


@dataclass(frozen=True)
class Item(Noun):
    """Something to gather or fetch, its short name, and the places where it is found."""

    noun: str = ""
    places: tuple[str, ...] = ()

    def form(self, form: str) -> str:
        return self.noun if form == "noun" else super().form(form)


GIRLS = words(
    "Mia Lily Rosie Nora Ada Ivy Clara Hazel Poppy Wren Daisy Luna Maya Elsie Tilly June Penny Flora "
    "Zoe Ruby Hattie Olive Greta Nina"
)
BOYS = words(
    "Tom Ben Max Leo Sam Otto Finn Theo Jack Oscar Milo Hugo Felix Toby Arlo Jasper Rufus Barnaby "
    "Gus Eli Noah Pip Bruno Walter"
)
NAMES = [Name(name, female=True) for name in GIRLS] + [Name(name) for name in BOYS]

KINDS = [
    Noun(kind)
    for kind in words(
        "girl boy rabbit mouse fox bear hedgehog squirrel otter duck frog badger mole kitten puppy lamb "
        "goat penguin turtle beaver"
    )
]

HOMES = [
    StoryPlace("cottage"),
    StoryPlace("cabin"),
    StoryPlace("farmhouse"),
    StoryPlace("treehouse"),
    StoryPlace("hut"),
    StoryPlace("little house"),
    StoryPlace("stone tower"),
    StoryPlace("wagon"),
]


def place(text: str, preposition: str, spots: str, snags: str) -> StoryPlace:
    return StoryPlace(text, preposition, tuple(words(spots)), tuple(words(snags)))


PLACES = [
    place("pond", "by", "among the reeds, under the willow, beside the dock", "tree mud water"),
    place("river", "by", "under the stone bridge, among the ferns, behind a log", "tree mud water rocks"),
    place("forest", "in", "under a fallen log, in a hollow oak, behind the tall ferns", "tree thorns hole"),
    place("meadow", "in", "in the long grass, beside the wooden fence, under a bush", "thorns hole mud"),
    place("beach", "on", "behind a sand dune, under an old boat, beside a tide pool", "hole water rocks"),
    place("orchard", "in", "under the oldest apple tree, behind the ladder, in the tall grass", "tree thorns"),
    place("market", "at", "under the fruit stall, behind a barrel, beside the flower cart", "roof hole"),
    place("old mill", "at", "behind the mill wheel, under the steps, beside the flour sacks", "roof water"),
    place("hill", "on", "behind the tall stone, under the lonely pine, in the heather", "tree rocks hole"),
    place("garden", "in", "behind the watering can, under the rose bush, among the cabbages", "tree thorns mud"),
    place("harbour", "at", "behind a pile of nets, under the bench, inside an empty crate", "water rocks roof"),
    place("village square", "in", "behind the fountain, under the bench, beside the clock tower", "tree roof"),
    place("bridge", "by", "under the first arch, behind the lamp post, beside the steps", "water mud rocks"),
    place("waterfall", "by", "behind the mossy rocks, under a big leaf, in a small cave", "water rocks thorns"),
    place("lake", "by", "under the old canoe, among the rushes, beside the landing", "water mud tree"),
    place("park", "in", "under the swings, behind the bandstand, beside the big chestnut tree", "tree mud thorns"),
    place("farm", "on", "behind the haystack, under the hay cart, beside the hen house", "mud roof hole"),
    place("windmill", "at", "behind the door, under the stairs, among the sunflowers", "roof thorns"),
    place("lighthouse", "at", "behind the coal shed, under the spiral stairs, among the rocks", "rocks water roof"),
    place("valley", "in", "behind the stone wall, under a hazel bush, beside the stream", "thorns hole rocks"),
]

SOFT = words("red blue green yellow purple striped woolly soft spotted orange")
HARD = words("red blue green yellow silver golden wooden shiny tiny painted")
LIGHT = words("red blue green yellow purple striped paper spotted orange white")
THINGS = [
    Thing(f"{adjective} {noun}", noun)
    for adjectives, nouns in (
        (SOFT, "scarf, hat, ribbon, cap, mitten, blanket, puppet, bag"),
        (HARD, "drum, whistle, bell, lantern, flute, spinning top, toy boat, marble, button, music box, medal, key"),
        (LIGHT, "kite, lampion, fan, notebook"),
    )
    for noun in words(nouns)
    for adjective in adjectives
]

SKILLS = [
    Skill("swim", "swimming", ("pond", "lake", "river")),
    Skill("skip stones", "skipping stones", ("pond", "lake", "river", "beach")),
    Skill("fly a kite", "flying a kite", ("hill", "meadow", "beach", "park")),
    Skill("climb trees", "climbing trees", ("forest", "orchard", "park")),
    Skill("ride a bicycle", "riding a bicycle", ("park", "village square", "farm")),
    Skill("row a boat", "rowing a boat", ("lake", "pond", "river", "harbour")),
    Skill("turn a cartwheel", "turning a cartwheel", ("meadow", "park", "hill", "beach")),
    Skill("whistle", "whistling"),
    Skill("dance", "dancing"),
    Skill("juggle", "juggling"),
    Skill("play the flute", "playing the flute"),
    Skill("walk on stilts", "walking on stilts"),
    Skill("paint a picture", "painting a picture"),
    Skill("count to a hundred", "counting to a hundred"),
]

ITEMS = [
    Item("pink seashell", "seashell", ("beach", "harbour")),
    Item("smooth white stone", "stone", ("river", "waterfall", "beach")),
    Item("bunch of daisies", "daisies", ("meadow", "hill", "valley")),
    Item("basket of apples", "apples", ("orchard",)),
    Item("basket of plums", "plums", ("orchard", "farm")),
    Item("jar of honey", "honey", ("market", "farm", "forest")),
    Item("long grey feather", "feather", ("lake", "pond", "lighthouse")),
    Item("four-leaf clover", "clover", ("meadow", "valley", "hill")),
    Item("bundle of carrots", "carrots", ("garden", "farm")),
    Item("loaf of warm bread", "bread", ("market", "old mill", "windmill")),
    Item("ginger cake", "cake", ("market", "village square")),
    Item("sweet red rose", "rose", ("garden", "park")),
    Item("basket of blackberries", "blackberries", ("forest", "valley", "bridge")),
    Item("bag of chestnuts", "chestnuts", ("park", "forest")),
    Item("jar of plum jam", "jam", ("market", "village square")),
    Item("sunflower", "sunflower", ("windmill", "garden")),
]

FOODS = [
    Noun(food)
    for food in words(
        "honey cake, cherry pie, apple pie, cheese sandwich, bowl of strawberries, bag of buttered rolls, plum tart, "
        "box of ginger biscuits, jar of sweet pickles, bunch of grapes, pot of warm soup, walnut cake"
    )
]

ELDERS = [Noun(who) for who in words("owl tortoise gardener fisherman shepherd baker goose miller")]
PROJECTS = [
    Item("raft", "raft", ("pond", "river", "lake", "harbour", "beach")),
    Item("den", "den", ("forest", "meadow", "hill", "valley", "orchard")),
    Item("birdhouse", "birdhouse", ("garden", "orchard", "park", "forest", "farm")),
    Item("swing", "swing", ("orchard", "garden", "park", "forest", "lake")),
    Item("sandcastle", "sandcastle", ("beach", "lake", "river")),
    Item("cart", "cart", ("farm", "village square", "hill", "market", "windmill", "valley")),
]

# Facts that are never written: they select sets of sentences.
SNAGS = [Noun(snag) for snag in words("tree mud thorns roof hole water rocks")]
REASONS = [Noun(reason) for reason in words("birthday sick new sad")]
NOISES = [Noun(noise) for noise in words("tap scratch thump whoo jingle")]

# Word lists for <list> in a sentence pattern: any word may appear, and later sentences do not depend on it.
WORDS = {
    "little": words("little small young cheerful brave curious quiet clever kind gentle shy merry"),
    "nice": words("lovely bright fine golden clear gentle sunny peaceful"),
    "weather": words("sunny windy cloudy misty warm cool breezy bright crisp"),
    "time": words("morning afternoon day"),
    "season": words("spring summer autumn"),
    "sadly": words("sadly quietly softly slowly"),
    "happy": words("happy glad joyful cheerful delighted pleased"),
    "sad": words("sad worried upset unhappy lonely"),
    "tired": words("tired sleepy hungry cold thirsty"),
    "snack": words("toast soup pancakes porridge cake biscuits pie cocoa"),
    "game": words("tag, hide and seek, hopscotch, leapfrog, catch, pirates, cards"),
    "colour": words("red blue green yellow purple golden pink white"),
    "bird": words("robin blackbird sparrow lark magpie crow wren swallow"),
    "flower": words("poppies daisies bluebells roses tulips primroses violets"),
    "size": words("big huge tall great heavy"),
    "Count": words("Two Three Four Five Six Ten"),
    "count": words("two three four five six ten"),
    "family": words("mother father grandmother grandfather aunt uncle sister brother"),
}
