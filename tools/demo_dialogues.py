"""Writes the dialogues the demo model is trained on.

They are there to give a debugger something to look at: thinking passages, tool calls with their answers, facts that
must be remembered from the prompt, and answers of several sentences or lines, so that full stops and line ends occur
inside an answer as well as at its end. Every function draws one dialogue from the random numbers it is given.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

NAMES = (
    "Ruth Adam Naomi Seth Miriam Caleb Tamar Silas Lydia Amos Dinah Joel Hannah Boaz Leah Noah Esther Levi Martha Enoch"
).split()
PLACES = (
    "Bethel Jericho Ephesus Corinth Nineveh Hebron Antioch Damascus Tyre Sidon Rome Athens Joppa Philippi Smyrna"
).split()
THINGS = "lamp stone ring scroll cup coat fig sword harp basket key bell rope jar staff".split()
COLOURS = "red blue green white black brown purple gold silver grey".split()
BEASTS = "ox lamb dove lion goat horse raven fox camel bee".split()
WORKS = {"shepherd": "keeps sheep", "baker": "bakes bread", "smith": "works iron", "weaver": "weaves cloth",
         "fisher": "catches fish", "potter": "makes jars"}  # fmt: skip
SYSTEM = ("system", "You may call tools. Tools: add(a, b), multiply(a, b), weather(city).")

# What the demo is about, in its own words: (questions, what it thinks, what it answers).
EXPLANATIONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("Hello.", "Hi.", "Good day."), "The user greets me.", "Hello. How can I help you?"),
    (("Who are you?", "What are you?"), "The user asks about me.",
     "I am a very small model. I have eight layers. Six of them carry a state, and two of them look back at the text."),
    (("What is a snapshot?", "Explain a snapshot."), "A snapshot is a copy.",
     "A snapshot is a copy of the state. It is taken before a guess. If the guess is wrong, the copy is put back."),
    (("What is a rollback?", "Explain a rollback."), "A rollback goes back in time.",
     "A rollback puts an old state back. The wrong tokens are dropped. Then the right tokens are read again."),
    (("What is a draft?", "Explain a draft."), "A draft is a guess.",
     "A draft is a quick guess at the next tokens. The model checks the guess. It keeps the part that is right."),
    (("What is a partial accept?", "Explain a partial accept."), "Only a part of the draft is right.",
     "A partial accept keeps the first tokens of a draft.\nThe other tokens are thrown away.\n"
     "The state must then be mended."),
    (("What is a recurrent state?", "Explain the recurrent state."), "The state is a memory.",
     "The recurrent state is a memory of fixed size.\nEvery token changes it.\nIt cannot be cut back like a list."),
    (("What is a layer?", "Explain a layer."), "A model is made of layers.",
     "A layer is one part of a model. It reads numbers from the layer below. It gives numbers to the layer above."),
    (("What is a token?", "Explain a token."), "A token is a piece of text.",
     "A token is a piece of text. It may be a word, a part of a word, or a mark such as a full stop."),
)  # fmt: skip
RECIPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bake bread", ("Mix flour and water.", "Let the dough rest.", "Shape a loaf.", "Bake it until it is brown.")),
    ("light a lamp", ("Fill the lamp with oil.", "Set the wick.", "Bring the fire to the wick.")),
    ("draw water", ("Take the rope and the jar.", "Let the jar down.", "Wait until it is full.", "Pull it up.")),
    ("mend a net", ("Find the hole.", "Cut the loose ends.", "Tie new cord across the hole.", "Pull the knots tight.")),
    ("plant a tree", ("Dig a hole.", "Set the tree in it.", "Put the earth back.", "Give it water.")),
    ("send a letter", ("Write the letter.", "Fold it and seal it.", "Give it to the rider.")),
)


def chat(*turns: tuple[str, str]) -> str:
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)


def answer(thought: str, text: str) -> tuple[str, str]:
    return "assistant", f"<think>\n{thought}\n</think>\n\n{text}"


def _call(name: str, **arguments: int | str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _result(sign: str, a: int, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def arithmetic(rng: random.Random) -> str:
    sign, word = rng.choice([("+", "plus"), ("-", "minus"), ("*", "times")])
    top = 9 if sign == "*" else 20
    a, b = rng.randint(0, top), rng.randint(0, top)
    if sign == "-":
        a, b = max(a, b), min(a, b)
    question = rng.choice([f"What is {a} {sign} {b}?", f"What is {a} {word} {b}?", f"Please work out {a} {sign} {b}."])
    result = _result(sign, a, b)
    return chat(
        ("user", question),
        answer(f"I need {a} {word} {b}. {a} {sign} {b} = {result}.", f"The answer is {result}."),
    )


def tool(rng: random.Random) -> str:
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    name, word, sign = rng.choice([("add", "plus", "+"), ("multiply", "times", "*")])
    result = _result(sign, a, b)
    turns = [
        ("user", f"What is {a} {sign} {b}?"),
        answer(f"The numbers are large. I will call the {name} tool.", _call(name, a=a, b=b)),
        ("tool", str(result)),
        answer(f"The tool says {result}.", f"{a} {word} {b} is {result}."),
    ]
    return chat(*([SYSTEM] if rng.random() < 0.6 else []), *turns)


def weather(rng: random.Random) -> str:
    city, sky, degrees = rng.choice(PLACES), rng.choice("sunny cloudy windy raining cold".split()), rng.randint(2, 39)
    advice = "Take a coat." if degrees < 15 or sky in ("raining", "cold") else "It is a good day to walk."
    turns = [
        ("user", rng.choice([f"How is the weather in {city}?", f"What is the weather in {city}?"])),
        answer(f"I do not know the weather in {city}. I will call the weather tool.", _call("weather", city=city)),
        ("tool", json.dumps({"sky": sky, "degrees": degrees})),
        answer(f"It is {sky} and {degrees} degrees.", f"In {city} it is {sky}, and {degrees} degrees. {advice}"),
    ]
    return chat(*([SYSTEM] if rng.random() < 0.6 else []), *turns)


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _facts(rng: random.Random, count: int) -> tuple[list[str], str, list[str]]:
    """Names, the kind of fact, and one sentence for each name."""
    who = rng.sample(NAMES, count)
    kind = rng.choice(["live", "have", "see"])
    if kind == "live":
        facts = [f"{name} lives in {place}." for name, place in zip(who, rng.sample(PLACES, count), strict=True)]
    elif kind == "have":
        things = rng.sample(THINGS, count)
        facts = [f"{name} has a {rng.choice(COLOURS)} {thing}." for name, thing in zip(who, things, strict=True)]
    else:
        facts = [
            f"{name} saw {with_article(beast)}." for name, beast in zip(who, rng.sample(BEASTS, count), strict=True)
        ]
    return who, kind, facts


def recall(rng: random.Random) -> str:
    """Facts first, then a question about one of them: the answer exists only in what the model remembers."""
    who, kind, facts = _facts(rng, rng.randint(2, 5))
    questions = {"live": "Where does {} live?", "have": "What does {} have?", "see": "What did {} see?"}
    turns: list[tuple[str, str]] = []
    for turn in range(2 if rng.random() < 0.4 else 1):
        asked = rng.randrange(len(who))
        question = questions[kind].format(who[asked])
        turns.append(("user", question if turn else " ".join([*facts, question])))
        turns.append(answer(f"The question is about {who[asked]}. {facts[asked]}", facts[asked]))
    return chat(*turns)


def recall_all(rng: random.Random) -> str:
    """All the facts again, one a line: a long answer which a good draft can follow."""
    who, _, facts = _facts(rng, rng.randint(2, 4))
    return chat(
        ("user", " ".join(facts) + " " + rng.choice(["Tell me all of it again.", "What do you know?"])),
        answer(f"I know {len(who)} things.", "\n".join(facts)),
    )


def person(rng: random.Random) -> str:
    name, place = rng.choice(NAMES), rng.choice(PLACES)
    work = rng.choice(list(WORKS))
    thing = f"{rng.choice(COLOURS)} {rng.choice(THINGS)}"
    told = f"{name} is a {work} from {place} and has a {thing}."
    return chat(
        ("user", f"{told} Tell me about {name}."),
        answer(
            f"I will tell what I know about {name}.",
            f"{name} lives in {place}. {name} is a {work}, and {WORKS[work]}.\n{name} also has a {thing}.",
        ),
    )


def numbered_list(rng: random.Random) -> str:
    kind, words = rng.choice([("beasts", BEASTS), ("places", PLACES), ("colours", COLOURS), ("people", NAMES)])
    count = rng.randint(2, 6)
    numbered = "\n".join(f"{i}. {word}" for i, word in enumerate(rng.sample(words, count), 1))
    return chat(("user", f"Name {count} {kind}."), answer(f"I need {count} {kind}.", numbered))


def steps(rng: random.Random) -> str:
    task, recipe = rng.choice(RECIPES)
    thought = f"To {task} takes {len(recipe)} steps."
    if rng.random() < 0.5:
        numbered = "\n".join(f"{i}. {step}" for i, step in enumerate(recipe, 1))
        return chat(("user", f"How do I {task}?"), answer(thought, numbered))
    return chat(("user", f"In short, how do I {task}?"), answer(thought, " ".join(recipe)))


def explain(rng: random.Random) -> str:
    questions, thought, text = rng.choice(EXPLANATIONS)
    return chat(("user", rng.choice(questions)), answer(thought, text))


def repeat(rng: random.Random) -> str:
    words = rng.choices(NAMES + THINGS + COLOURS + BEASTS, k=rng.randint(2, 7))
    if rng.random() < 0.5:
        return chat(
            ("user", "Say this again: " + " ".join(words)), answer(f"There are {len(words)} words.", " ".join(words))
        )
    counted = ", ".join(f"{i} {word}" for i, word in enumerate(words, 1))
    return chat(
        ("user", "How many words are here: " + " ".join(words)),
        answer(f"I count them: {counted}.", f"There are {len(words)} words."),
    )


def code(rng: random.Random) -> str:
    name, task, expression = rng.choice([
        ("add", "adds two numbers", "{0} + {1}"),
        ("sub", "takes the second number from the first", "{0} - {1}"),
        ("mul", "multiplies two numbers", "{0} * {1}"),
        ("largest", "gives the larger of two numbers", "{0} if {0} > {1} else {1}"),
        ("same", "tells if two values are equal", "{0} == {1}"),
    ])  # fmt: skip
    x, y = rng.sample("abxymnpq", 2)
    body = expression.format(x, y)
    doc = f'    """Return {body}."""\n' if rng.random() < 0.5 else ""
    return chat(
        ("user", f"Write a function that {task}."),
        answer(
            f"I will name it {name} and use the names {x} and {y}.",
            f"```python\ndef {name}({x}, {y}):\n{doc}    return {body}\n```",
        ),
    )


Kind = Callable[[random.Random], str]

# The kinds which need no other text, each with the number of times it is drawn beside the others.
KINDS: tuple[tuple[Kind, float], ...] = (
    (recall_all, 2), (arithmetic, 3), (tool, 2), (weather, 2), (repeat, 2), (code, 2), (person, 2),
    (numbered_list, 1.5), (steps, 1), (explain, 2),
)  # fmt: skip


def go_on(rng: random.Random, verses: Sequence[str]) -> str:
    """The second part of a verse, asked for with its first."""
    words = rng.choice(verses).split()
    cut = rng.randint(1, max(1, len(words) - 1))
    return chat(
        ("user", "Go on: " + " ".join(words[:cut])),
        answer("This is a verse. I will go on from here.", " ".join(words[cut:])),
    )
