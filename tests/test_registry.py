"""Commands as data: names, prefixes, arguments, completion, help, and the documentation made from them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from inspector.commands.errors import UsageError
from inspector.commands.groups import build_registry
from inspector.commands.manual import help_lines, manual
from inspector.commands.parser import Words, script_lines, split_commas, split_if, strip_comment
from inspector.commands.places import Base, PlaceSpec, When, parse_when, take_base, take_place
from inspector.commands.registry import Arg, Registry

# Fixed by habit, whatever other names begin so.
GDB = {
    "s": ("step", False), "S": ("step", True), "rs": ("step", True), "i": ("event", False), "I": ("event", True),
    "stepi": ("event", False), "n": ("next", False), "N": ("next", True), "rn": ("next", True), "o": ("chunk", False),
    "f": ("finish", False), "F": ("finish", True), "c": ("continue", False), "C": ("continue", True),
    "rc": ("continue", True), "b": ("break", False), "tb": ("tbreak", False), "w": ("watch", False),
    "p": ("print", False), "x": ("examine", False), "d": ("delete", False), "u": ("until", False),
    "g": ("goto", False), "l": ("last", False), "h": ("help", False), "q": ("quit", False), "r": ("restart", False),
    "v": ("verify", False), "a": ("accept", False), "m": ("mark", False), "D": ("diff", False),
    "reverse-step": ("step", True), "reverse-cont": ("continue", True), "cond": ("condition", False),
}  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Registry:
    return build_registry()


@pytest.mark.parametrize("word", GDB)
def test_fixed_short_names(registry: Registry, word: str) -> None:
    command, backwards = registry.resolve(word)
    assert (command.name, backwards) == GDB[word]


def test_every_command_of_the_plan_is_there(registry: Registry) -> None:
    wanted = """step event next chunk finish continue until goto back forward verify accept rollback save restore
    checkpoint sync new fork free inject break tbreak watch rwatch awatch trace condition ignore delete disable enable
    invariants print display undisplay info where last why examine list diff mark note marks branch branches record
    export assert source set show echo help quit""".split()
    assert set(wanted) <= {command.name for command in registry.commands}


def test_the_shortest_unambiguous_prefix_is_enough(registry: Registry) -> None:
    names = [command.name for command in registry.commands]
    for name in names:
        for size in range(1, len(name) + 1):
            prefix = name[:size]
            if prefix in registry.words:
                continue
            begin = sorted(other for other in names if other.startswith(prefix))
            if len(begin) == 1:
                assert registry.resolve(prefix)[0].name == name
            else:
                with pytest.raises(UsageError) as error:
                    registry.resolve(prefix)
                assert all(other in str(error.value) for other in begin)


def test_an_unknown_command_gets_a_suggestion(registry: Registry) -> None:
    with pytest.raises(UsageError, match=r'no command "contniue".*Did you mean "continue"'):
        registry.resolve("contniue")


def test_two_commands_cannot_have_one_name() -> None:
    registry = Registry()
    registry.command("one", "move", "x", aliases=("o",))(lambda ctx, args: None)
    with pytest.raises(ValueError, match="already means one"):
        registry.command("other", "move", "x", aliases=("o",))(lambda ctx, args: None)
    with pytest.raises(ValueError, match="cannot be reached"):
        registry.command("third", "move", "x", Arg("a", optional=True), Arg("b"))(lambda ctx, args: None)


def test_help_lists_every_command_once(registry: Registry) -> None:
    lines = help_lines(registry, "")
    for command in registry.commands:
        assert sum(1 for line in lines if re.match(rf"  {re.escape(command.name)}\s", line)) == 1


def test_help_of_each_command_has_usage_and_an_example_that_names_it(registry: Registry) -> None:
    for command in registry.commands:
        text = "\n".join(help_lines(registry, command.name))
        assert text.startswith(command.usage)
        assert command.help in text
        assert command.example.split()[0] == command.name
        assert command.help[0].islower() and not command.help.endswith(".")


@pytest.mark.parametrize("topic", ["rev", "reverse", "WHERE", "EXPR", "PLACE", "names", "functions", "places", "time"])
def test_words_that_help_speaks_of_have_help_too(registry: Registry, topic: str) -> None:
    lines = help_lines(registry, topic)
    assert len(lines) > 2
    if topic.startswith("rev"):
        able = [command.name for command in registry.commands if command.reversible]
        assert f"movements: {', '.join(able)}" in "\n".join(lines)


def test_keys_that_go_back_say_where_to(registry: Registry) -> None:
    from inspector.tui.screens.help import meaning

    told = {
        command.name: meaning(f"rev {command.name}", registry) for command in registry.commands if command.reversible
    }
    assert told == {
        "step": "back: one token", "event": "back: one engine event", "next": "back: to the end of the round before",
        "chunk": "back: to the chunk or round boundary before", "finish": "back: to the start of the request",
        "continue": "back: to the last stop before now", "until": "back: to the last event before now",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["verify", "accept"])
def test_help_tells_how_to_force_the_count_of_a_verify(registry: Registry, name: str) -> None:
    from inspector.commands.groups.actions import FORCED

    assert set(FORCED.split("\n")) <= {line[2:] for line in help_lines(registry, name)}


def test_the_documentation_is_current(registry: Registry) -> None:
    from pathlib import Path

    written = Path(__file__).parent.parent / "docs" / "commands.md"
    assert written.read_text(encoding="utf-8") == manual(registry), "run: python tools/make_docs.py"


# ----------------------------------------------------------------------------------------------------------- the line


def words(line: str) -> list[tuple[str, bool]]:
    reader, found = Words(line), []
    while (word := reader.take()) is not None:
        found.append((word.text, word.quoted))
    return found


def test_words_and_quotes() -> None:
    assert words('new "a b\\n\\x1b\\u00e9\\"\\\\" max=2') == [
        ("new", False),
        ('a b\n\x1b\u00e9"\\', True),
        ("max=2", False),
    ]
    assert words("goto 'a") == [("goto", False), ("'a", False)]
    assert words('a="b c" d') == [('a="b c"', False), ("d", False)]
    assert words("   ") == []


@pytest.mark.parametrize("line", ['new "a', 'x "\\q"', 'x "\\u12"'])
def test_a_quote_that_is_wrong_is_told(line: str) -> None:
    with pytest.raises(UsageError, match=r"never closed|not an escape"):
        words(line)


def test_comments() -> None:
    assert strip_comment("step 5 # five") == "step 5 "
    assert strip_comment("# all") == ""
    assert strip_comment('new "a # b" # c') == 'new "a # b" '
    assert strip_comment("break if text == ' # ' # x") == "break if text == ' # ' "
    assert strip_comment("goto 'a # there") == "goto 'a "
    assert strip_comment("print 1#2") == "print 1#2"


def test_script_lines_keep_their_numbers() -> None:
    assert list(script_lines("# one\n\nstep\r\n  next  # x\n")) == [(3, "step"), (4, "next")]


def test_if_and_commas_split_outside_quotes_and_brackets() -> None:
    assert split_if("accept if accepted < 2") == ("accept", "accepted < 2")
    assert split_if('token " if " if k') == ('token " if "', "k")
    assert split_if("if skew") == ("", "skew")
    assert split_if("verify") == ("verify", "")
    assert split_if("1 if 2 else 3") == ("1", "2 else 3")
    assert split_commas("a, min(b, c), 'x,y'") == ["a", "min(b, c)", "'x,y'"]


PLACES = {
    "live": PlaceSpec("live"),
    "live r1": PlaceSpec("live", req=1),
    "live(2)": PlaceSpec("live", req=2),
    "live:3": PlaceSpec("live", slot=3),
    "ckpt": PlaceSpec("checkpoint"),
    "step 1": PlaceSpec("step", 1),
    "step:0.1": PlaceSpec("step", 1, 0),
    "ring 2": PlaceSpec("ring", 2),
    "ring:1.2": PlaceSpec("ring", 2, 1),
    "ring(2).conv": PlaceSpec("ring", 2, part="conv"),
    "ring 2.h[3]": PlaceSpec("ring", 2, part="h", layer=3),
    "live.h[3, 1]": PlaceSpec("live", part="h", layer=3, head=1),
    "prefix 4": PlaceSpec("prefix", 4),
    "prefix:4": PlaceSpec("prefix", 4),
    "live @12": PlaceSpec("live", when=When("event", 12)),
    "live@12": PlaceSpec("live", when=When("event", 12)),
    "ring 1.h @'a": PlaceSpec("ring", 1, part="h", when=When("mark", 0, "a")),
}


@pytest.mark.parametrize("text", PLACES)
def test_places(text: str) -> None:
    reader = Words(text)
    assert take_place(reader) == PLACES[text]
    assert not reader.left()
    # What is shown can be typed again.
    assert take_place(Words(str(PLACES[text]).replace(" '", " @'"))) == PLACES[text]


@pytest.mark.parametrize(
    "text", ["", "lives", "ring", "step x", "ring:1", "live:1.2", "ring 1.k", "ring r1", "live.h[a]"]
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(UsageError):
        reader = Words(text)
        take_place(reader)
        if reader.left():
            raise UsageError("something is left")


def test_bases_and_instants() -> None:
    assert take_base(Words("prev")) == Base(name="previous")
    assert take_base(Words("@7")) == Base(when=When("event", 7))
    assert take_base(Words("'a")) == Base(when=When("mark", 0, "a"))
    assert take_base(Words("ring 1")) == Base(place=PlaceSpec("ring", 1))
    assert parse_when("12") == parse_when("@12") == When("event", 12)
    for wrong in ("golde n", "nothing", ""):
        with pytest.raises(UsageError):
            reader = Words(wrong)
            take_base(reader)
            if reader.left():
                raise UsageError("left")
    with pytest.raises(UsageError, match="instant is written"):
        parse_when("x")


def bound(registry: Registry, line: str, debugger: Any = None) -> dict[str, Any]:
    from inspector.commands.arguments import bind

    reader = Words(line)
    first = reader.take()
    assert first is not None
    return bind(registry.resolve(first.text)[0], reader, debugger)


def test_arguments_options_and_defaults(registry: Registry) -> None:
    args = bound(registry, 'new "a b" max=7 --seed 3 --temperature=0.5 --ignore-eos')
    assert args["prompt"] == '"a b"'
    assert (args["max"], args["seed"], args["temperature"], args["ignore-eos"]) == (7, 3, 0.5, True)
    assert (args["top-k"], args["streaming"]) == (0, False)
    assert bound(registry, "new the ring holds")["prompt"] == "the ring holds"
    assert bound(registry, "new 1 2 3 max=4")["prompt"] == "1 2 3"
    assert bound(registry, "step")["count"] == 1
    assert bound(registry, "delete 1 2 3")["stops"] == [1, 2, 3]
    assert bound(registry, "diff live ring 2 5 --tol 1e-4")["layer"] == 5
    assert bound(registry, "break accept if a == 1")["where"] == "accept if a == 1"


WRONG = {
    "decode mtp": 'decode: what must be conv, not "mtp". Usage: ',
    "rollback sideways ": 'rollback: to is one of boundary, ring, length, not "sideways". Usage: ',
    "step x": "count is a whole number",
    "step 0": "from 1",
    "step -3": "from 1",
    "step 1 2": "nothing more is expected",
    "goto": "when is missing",
    "goto nowhere": "instant is written",
    "diff live": "base is missing",
    "diff live ring": "ring needs a number",
    "diff live golden --tol x": "tol is a number",
    "diff live golden --tol nan": "finite",
    "diff live golden --what": 'no option "--what"',
    "info": "info: topic is missing: which table. Usage: ",
    "info rnag": 'Did you mean "ring"? Usage: ',
    "info rnig": 'Did you mean "ring"',
    "new": "prompt is missing",
    'new "a" max=-1': "from 1",
    'new "a': "never closed",
    "condition": "stop is missing",
    "rollback sideways": "boundary, ring, length",
    "print": "expr is missing",
    "ignore 1": "count is missing",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_argument_names_itself_and_shows_the_usage(registry: Registry, line: str) -> None:
    with pytest.raises(UsageError) as error:
        bound(registry, line)
    assert WRONG[line] in str(error.value)
    assert "Usage: " in str(error.value)
