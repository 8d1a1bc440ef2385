"""The command line: what is opened by content, exit statuses, one-paragraph errors, nothing heavy at the start."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from cli_helpers import NEW, Cli, fake_session

from engine.errors import UserError
from engine.safetensors_header import read_header
from inspector.cli import COMMANDS
from inspector.opening import sniff
from sessions.canonical import check_sum
from sessions.store import Store

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "engine" / "demo" / "model.safetensors"
DATA = Path(__file__).parent / "data"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def python(*args: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter in the repository."""
    return subprocess.run(
        [sys.executable, *args], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- start


def test_help_and_import_load_neither_torch_nor_textual() -> None:
    code = (
        "import sys, inspector.cli as c, inspector.opening, inspector.commands.debugger\n"
        "c.build_app()\n"
        "try: c.build_app()(args=['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = [m for m in ('torch', 'textual', 'rich', 'numpy', 'transformers', 'tokenizers') if m in sys.modules]\n"
        "print('heavy:', heavy)"
    )
    done = python("-c", code)
    assert "heavy: []" in done.stdout, done.stderr
    assert "Commands:" in done.stdout


def test_info_and_check_load_no_torch(tmp_path: Path) -> None:
    file = fake_session(tmp_path / "s.mtl")
    for args in (["info", str(DEMO)], ["check", str(file)], ["dump", str(file)]):
        code = (
            f"import sys, inspector.cli as c\ntry: c.build_app()(args={args!r})\nexcept SystemExit: pass\n"
            "print('torch' in sys.modules, 'textual' in sys.modules)"
        )
        assert python("-c", code).stdout.splitlines()[-1] == "False False"


def test_the_module_can_be_run_and_every_command_has_help(cli: Cli) -> None:
    done = python("-m", "inspector.cli", "--help")
    assert done.returncode == 0
    for name, _, about in COMMANDS:
        assert name in done.stdout
        status, out, _ = cli(name, "--help")
        assert status == 0 and "Usage:" in out
        assert about


def test_version(cli: Cli) -> None:
    status, out, _ = cli("--version")
    assert status == 0 and out.startswith("metrale-inspect ")


def test_the_screen_needs_a_terminal(cli: Cli) -> None:
    for args in ((), (DEMO,), ("open",), ("--prompt", "x", DEMO)):
        status, out, err = cli(*args)
        assert status == 2 and "needs a terminal" in err and not out


def test_a_first_argument_that_is_no_command_is_a_file(cli: Cli) -> None:
    status, _, err = cli("repaly")
    assert status == 3 and "repaly: there is no such file or folder, and no command of this name" in err


@pytest.mark.parametrize(
    "args",
    [
        ("check", "--foo", "x"),
        ("info", "--slots", "0"),
        ("run", "--drafts", "x"),
        ("run",),
        ("run", "--prompt", "x", "--verify", "sometimes"),
        ("export", "x", "y", "--to", "pdf"),
    ],
)
def test_usage_errors_are_2(cli: Cli, args: tuple[str, ...]) -> None:
    assert cli(*args)[0] == 2


# --------------------------------------------------------------------------------------------------------- opening


def test_files_are_told_apart_by_content(tmp_path: Path) -> None:
    session = fake_session(tmp_path / "a.safetensors")
    assert sniff(session).kind == "session"
    (tmp_path / "b.mtl").write_text("# scenario x\nbind_gpu_to_thread()\n")
    assert sniff(tmp_path / "b.mtl").kind == "trace"
    (tmp_path / "c").write_text("-- tick 1\nalloc_sequence() -> slot 0\n")
    assert sniff(tmp_path / "c").kind == "trace"
    (tmp_path / "d").write_text('{"kind":"start","seq":1}\n{"kind":"sync"}\n')
    assert sniff(tmp_path / "d").kind == "jsonl"
    (tmp_path / "config.json").write_text('{\n  "model_type": "qwen3_5"\n}\n')
    assert sniff(tmp_path / "config.json").kind == "config"
    (tmp_path / "e.index.json").write_text('{"weight_map": {}}')
    assert sniff(tmp_path / "e.index.json").kind == "model"
    (tmp_path / "f").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert sniff(tmp_path / "f").kind == "model"
    assert sniff(tmp_path).kind == "model"
    assert sniff(DEMO).kind == "model"
    assert sniff(None).name == "the bundled model"


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x01\x02", b"hello world\n", b"\xff" * 50, b"{not json", b"PK\x03\x04" + b"x" * 99]
)
def test_what_is_none_of_these_is_told_so(content: bytes, tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "thing"
    file.write_bytes(content)
    with pytest.raises(UserError, match="expected"):
        sniff(file)
    for args in ((file,), ("check", file), ("info", file), ("batch", file, "-e", "where"), ("replay", file)):
        status, out, err = cli(*args)
        assert status == 3 and not out
        assert err.startswith("metrale-inspect: ") and err.count("\n") == 1 and "thing" in err


def test_a_folder_without_a_model(cli: Cli, tmp_path: Path) -> None:
    status, _, err = cli("info", tmp_path)
    assert status == 3 and "model folder" in err


# ------------------------------------------------------------------------------------------------------------ info


def test_info_counts_what_is_allocated(cli: Cli) -> None:
    status, out, _ = cli("info", "--json", "--slots", "3", "--drafts", "2", "--ring", "5", DEMO)
    data = json.loads(out)
    assert status == 0
    layers = [layer for layer in data["layers"] if layer["h"]]
    state = data["per_layer_h"] + data["per_layer_conv"]
    assert data["per_sequence"] == len(layers) * state
    assert data["decode_ring"] == 5 * 3 * data["per_sequence"]
    live, checkpoint = 4 * data["per_sequence"], 4 * data["per_sequence"]
    steps = 4 * len(layers) * (2 * data["per_layer_h"] + 3 * data["per_layer_conv"])
    assert data["ssm_pool"] == live + checkpoint + steps == data["modes"]["snapshot"]["ssm_pool"]
    assert data["modes"]["replay"]["ssm_pool"] == live + checkpoint
    assert data["modes"]["replay"]["replay_ring"] > 0 == data["modes"]["snapshot"]["replay_ring"]
    for name in ("prefix_pool", "kv", "total"):
        assert data[name] > 0


def test_info_for_people_shows_both_modes(cli: Cli) -> None:
    status, out, _ = cli("info")
    assert status == 0
    assert "gated delta net" in out and "snapshot mode" in out and "replay mode" in out and "K 4 (3 drafts)" in out


def test_info_plans_for_a_bare_config(cli: Cli, tmp_path: Path) -> None:
    from engine.checkpoint import inspect_checkpoint

    side = inspect_checkpoint(DEMO).side["config.json"]
    (tmp_path / "config.json").write_text(side)
    status, out, _ = cli("info", "--json", tmp_path / "config.json")
    alone = json.loads(out)
    assert status == 0 and alone["weights_bytes"] == 0
    full = json.loads(cli("info", "--json", DEMO)[1])
    for name in ("ssm_pool", "decode_ring", "per_sequence", "per_layer_conv"):
        assert alone[name] == full[name]


def test_info_of_a_folder_with_only_a_config(cli: Cli, tmp_path: Path) -> None:
    from engine.checkpoint import inspect_checkpoint

    info = inspect_checkpoint(DEMO)
    (tmp_path / "config.json").write_text(info.side["config.json"])
    status, folder, _ = cli("info", tmp_path)
    assert status == 0 and folder == cli("info", tmp_path / "config.json")[1]
    assert "no weights here" in folder and "0 B as" not in folder
    data = json.loads(cli("info", "--json", tmp_path)[1])
    assert data["estimated_weights_bytes"] == pytest.approx(info.total_bytes, rel=0.01)
    status, _, err = cli("run", tmp_path, "--prompt", "x")
    assert status == 3 and "weights" in err


def test_info_folds_layers_that_repeat(cli: Cli) -> None:
    folded, full = cli("info")[1], cli("info", "--layers")[1]
    assert "6 x     gated delta net" in folded and "2 x     attention" in folded
    assert "period 4: 3 x gated delta net, 1 x attention" in folded and "4-6" not in folded
    assert "4-6     gated delta net" in full and "period" not in full


def test_layers_that_do_not_repeat_are_not_folded() -> None:
    from inspector.cli_info import _period

    def layers(kinds: str) -> list[dict[str, object]]:
        return [{"layer": at, "kind": kind} for at, kind in enumerate(kinds)]

    assert [_period(layers(kinds)) for kinds in ("rrarra", "rrarrar", "rrrr", "ra", "rara", "")] == [3, 0, 0, 0, 2, 0]


@pytest.mark.parametrize("mode", ["snapshot", "replay"])
def test_info_says_what_a_draft_costs(cli: Cli, mode: str) -> None:
    def data(drafts: int) -> dict[str, int]:
        return json.loads(cli("info", "--json", "--rollback-mode", mode, "--drafts", drafts)[1])  # type: ignore[no-any-return]

    few, more = data(2), data(4)
    grown = sum(more[pool] - few[pool] for pool in ("ssm_pool", "replay_ring"))
    assert few["per_draft"] > 0 and grown == 2 * (few["slots"] + 1) * few["per_draft"]


def test_info_refuses_a_recording(cli: Cli, tmp_path: Path) -> None:
    status, _, err = cli("info", fake_session(tmp_path / "s.mtl"))
    assert status == 3 and "no model" in err


# ------------------------------------------------------------------------------------------------------ recordings


def test_check_of_a_healthy_and_a_broken_recording(cli: Cli, tmp_path: Path) -> None:
    from fake_engine import FakeEngine

    from inspector.commands.debugger import Debugger
    from sessions.timeline import Timeline

    debugger = Debugger(Timeline.live(FakeEngine()))
    debugger.execute("set findings off")
    debugger.execute(NEW)
    debugger.execute("run 2")
    debugger.execute("fault conv_omitted")
    debugger.execute("run 4")
    debugger.timeline.save_as(tmp_path / "bad.mtl")
    status, out, _ = cli("check", tmp_path / "bad.mtl")
    assert status == 1
    lines = out.splitlines()
    assert lines[-1].endswith(f"{len(lines) - 1} findings") or "1 finding" in lines[-1]
    assert all(line.startswith("@") for line in lines[:-1])
    names = {line.split(": ")[0].split(" ")[-1] for line in lines[:-1]}
    first = cli("check", "--first", tmp_path / "bad.mtl")[1].splitlines()
    assert len(first) - 1 == len(names)
    off = [part for name in names for part in ("--off", name)]
    assert cli("check", *off, tmp_path / "bad.mtl")[0] == 0
    assert cli("check", "--off", "nope", tmp_path / "bad.mtl")[0] == 2


def test_check_of_the_engine_traces(cli: Cli) -> None:
    traces = sorted(DATA.glob("**/*.trace"))
    found = {trace.name: cli("check", trace) for trace in traces}
    for name, (status, out, err) in found.items():
        assert err.count("no meaning for state memory") == 1
        if name == "ngram.trace":
            assert status == 1 and "round 6" in out
        if name == "verify_k4.trace":
            assert status == 0 and "no finding" in out


def test_a_trace_with_a_byte_order_mark_is_read(cli: Cli, tmp_path: Path) -> None:
    trace = next(DATA.glob("**/ngram.trace"))
    marked = tmp_path / "marked.trace"
    marked.write_bytes(b"\xef\xbb\xbf" + trace.read_bytes())
    assert cli("check", marked)[:2] == cli("check", trace)[:2]


def test_calls_without_meaning_are_counted_once_and_ticks_are_none(cli: Cli, tmp_path: Path) -> None:
    lines = ["# scenario x", "create_stream() -> 1", "-- tick 1", "num_free_blocks() -> 9"]
    (tmp_path / "a.trace").write_text("\n".join(lines) + "\n")
    err = cli("check", tmp_path / "a.trace")[2]
    assert err == "2 calls of the trace have no meaning for state memory and are kept as unknown\n"
    assert cli("batch", tmp_path / "a.trace", "-e", "where")[2] == err


def test_check_tells_what_an_oracle_found_when_the_model_ran(cli: Cli, tmp_path: Path) -> None:
    from sessions.finding import Finding
    from sessions.timeline import Timeline

    file = fake_session(tmp_path / "s.mtl")
    assert cli("check", file)[0] == 0
    timeline = Timeline.open(file)
    timeline.add_finding(Finding("layer0-oracle", 30, 1, "live:0", text="layer 0 is wrong"))
    timeline.close()
    status, out, _ = cli("check", file)
    assert status == 1 and out.startswith("@30") and "layer0-oracle: layer 0 is wrong" in out and "1 finding" in out


def test_a_saved_session_counts_the_events_of_all_branches(cli: Cli, tmp_path: Path) -> None:
    from fake_engine import FakeEngine

    from inspector.commands.debugger import Debugger
    from sessions.timeline import Timeline

    debugger = Debugger(Timeline.live(FakeEngine(), factory=FakeEngine))
    for line in (NEW, "run 5", "rev next 2", "verify 1"):
        debugger.execute(line)
    assert len(debugger.timeline.branches) == 2
    said = debugger.execute(f"record {tmp_path / 'c.mtl'}").lines[0]
    debugger.close()
    assert said.endswith(cli("check", tmp_path / "c.mtl")[1].split(":")[0])


def test_check_and_replay_count_the_same_events(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "s.mtl"
    assert cli("record", file, "--prompt", "the ring", "--max-tokens", "12")[0] == 0
    counts = [cli(command, file)[1].split(" event")[0] for command in ("check", "replay")]
    assert counts[0] == counts[1] == str(len(cli("dump", file)[1].splitlines()))


def test_dump_is_canonical_and_reads_back(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "s.mtl")
    status, out, _ = cli("dump", file)
    assert status == 0
    lines = out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1))
    (tmp_path / "s.jsonl").write_text(out)
    assert cli("dump", tmp_path / "s.jsonl")[1] == out
    assert cli("diff", file, tmp_path / "s.jsonl")[0] == 0


def test_diff_names_the_first_event_that_differs(cli: Cli, tmp_path: Path) -> None:
    a = fake_session(tmp_path / "a.mtl")
    b = fake_session(tmp_path / "b.mtl", (NEW, "run 3", "accept 1", "run"))
    status, out, _ = cli("diff", a, b)
    assert status == 1 and "differs at event" in out and "  A: " in out and "  B: " in out


def test_diff_of_two_branches_of_one_file(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "a.mtl", (NEW, "run 4", "goto @40", "accept 1"))
    assert cli("diff", file, file)[0] == 0
    status, out, _ = cli("diff", file, file, "--branch-b", "1")
    assert status == 1 and "event" in out
    assert cli("diff", file, file, "--branch-b", "9")[0] == 2
    assert cli("dump", file, "--branch", "99")[0] == 2
    assert cli("museum", "nope")[0] == 2


def test_pack_makes_a_clean_copy_and_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "a.mtl")
    assert cli("pack", file, tmp_path / "b.mtl")[0] == 0
    assert cli("diff", file, tmp_path / "b.mtl")[0] == 0
    status, _, err = cli("pack", file, tmp_path / "b.mtl")
    assert status == 3 and "b.mtl" in err


def test_export_of_each_format(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "a.mtl", (NEW, "run 3", "mark here", "run 2"))
    for to in ("json", "trace", "test", "session"):
        status, _, err = cli("export", file, tmp_path / f"out.{to}", "--to", to, "--at", "'here")
        assert status == 0 and (tmp_path / f"out.{to}").stat().st_size > 0, err
    assert json.loads((tmp_path / "out.trace").read_text())["traceEvents"]
    compile((tmp_path / "out.test").read_text(), "out.test", "exec")
    status, _, err = cli("export", file, tmp_path / "out.tensors", "--to", "tensors")
    assert status in (0, 3) and err
    assert cli("export", file, tmp_path / "x", "--at", "@999999")[0] == 3


def test_replay_of_a_recording_of_another_model_asks_for_it(cli: Cli, tmp_path: Path) -> None:
    status, _, err = cli("replay", fake_session(tmp_path / "a.mtl"))
    assert status == 3 and "--model" in err and "fake" in err


def test_a_damaged_session_is_one_paragraph(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "a.mtl")
    data = file.read_bytes()
    (tmp_path / "cut.mtl").write_bytes(data[: len(data) // 3])
    (tmp_path / "holed.mtl").write_bytes(data[:5000] + b"\x00" * 9000 + data[14000:])
    for name in ("cut.mtl", "holed.mtl"):
        for args in (("check",), ("dump",), ("batch", "-e", "where"), ("replay",)):
            status, _, err = cli(args[0], tmp_path / name, *args[1:])
            assert status == 3 and name in err and err.count("\n") == 1, err


# ----------------------------------------------------------------------------------------------- with the real model


def test_run_writes_text_or_events(cli: Cli) -> None:
    args = ("--prompt", "Hello.", "--max-tokens", "8", "--threads", "1", "--device", "cpu")
    status, out, err = cli("run", *args)
    assert status == 0 and out.strip() and "tokens in" in err
    status, out, _ = cli("run", *args, "--events")
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert status == 0 and kinds[0] == "start" and kinds[-1] == "round_end"
    assert {"prefill", "draft", "verify", "accept", "commit", "finish"} <= set(kinds)
    assert cli("run", *args, "--events")[1] == out


def test_run_errors_are_one_paragraph(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(DEMO.read_bytes()[:5000])
    cut = tmp_path / "m.safetensors"
    for args in (
        ("run", cut, "--prompt", "x"),
        ("run", tmp_path / "none", "--prompt", "x"),
        ("run", fake_session(tmp_path / "s.mtl"), "--prompt", "x"),
        ("run", "--prompt", "x " * 400, "--kv-tokens", "64", "--device", "cpu"),
        ("batch", cut, "-e", "where"),
    ):
        status, _, err = cli(*args)
        assert status == 3 and err.splitlines()[-1].startswith("metrale-inspect: "), (args, err)


def test_record_then_replay_then_act_on_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.mtl"
    device = ("--device", "cpu", "--threads", "1")
    status, _, err = cli("record", file, "--prompt", "Hello.", "--chat", "--max-tokens", "24", "--drafts", "2", *device)
    assert status == 0 and "0 findings" in err
    status, out, _ = cli("replay", file, *device)
    assert status == 0 and out.endswith("the same\n")
    status, _, err = cli("record", file, "--prompt", "x", *device)
    assert status == 3 and "already" in err
    status, out, err = cli(
        "batch", file, *device, "-e", "rev step 6", "-e", "diff live golden --exact", "-e", "accept 1", "-e", "sync",
        "-e", "diff live golden --exact", "-e", "assert skew == 0",
    )  # fmt: skip
    assert status == 0, (out, err)
    assert out.count("all bitwise equal") == 4 and "BRANCH 1" in out


def test_ctrl_c_ends_politely() -> None:
    script = ['new "Hello." max=3000 --ignore-eos', "continue"]
    command = [sys.executable, "-m", "inspector.cli", "batch", *(part for line in script for part in ("-e", line))]
    running = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "interrupted" in err and "Traceback" not in err


def test_a_refused_recording_leaves_no_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.mtl"
    status, _, err = cli("record", file, "--prompt", "x " * 400, "--kv-tokens", "64", "--device", "cpu")
    assert status == 3 and "--kv-tokens" in err
    assert list(tmp_path.iterdir()) == []


def test_nan_weights_are_warned_of_and_every_line_stays_json(cli: Cli, tmp_path: Path) -> None:
    raw = bytearray(DEMO.read_bytes())
    header = read_header(DEMO)
    begin = header.data_start + header.tensors["model.norm.weight"].begin
    raw[begin : begin + 2] = b"\xc0\x7f"  # a bfloat16 NaN
    model, file = tmp_path / "nan.safetensors", tmp_path / "nan.mtl"
    model.write_bytes(raw)
    args = ("--prompt", "Hello.", "--max-tokens", "6", "--device", "cpu", "--threads", "1")

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    status, out, err = cli("run", model, *args, "--events")
    assert status == 0 and "warning: " in err and "model.norm.weight has 1 NaN" in err
    assert [json.loads(line, parse_constant=refuse) for line in out.splitlines()]
    threads = ("--device", "cpu", "--threads", "1")
    act = ("-e", 'new "Hello." max=6 --ignore-eos', "-e", "run 3")
    assert "warning: " in cli("batch", model, *threads, "--record", file, *act)[2]
    status, out, _ = cli("dump", file)
    assert status == 0 and "nan" in [json.loads(line, parse_constant=refuse).get("margin") for line in out.splitlines()]
    (tmp_path / "nan.jsonl").write_text(out)
    assert cli("diff", tmp_path / "nan.jsonl", file)[0] == 0
    status, _, err = cli("replay", file, "--model", model, "--device", "cpu", "--threads", "1")
    assert status == 0 and "warning: " in err


def test_a_recording_damaged_inside_is_3_for_every_command(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "a.mtl")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM event WHERE seq = 20")
    for args in (("check",), ("dump",), ("pack", tmp_path / "out.mtl"), ("batch", "-e", "goto end", "-e", "where")):
        status, _, err = cli(args[0], file, *args[1:])
        assert status == 3 and "event 20 of branch 0" in err, (args, err)
    assert cli("diff", file, file)[0] == 3, "equal chains of a damaged file say nothing"
    assert not list(tmp_path.glob("out*")), "nothing half-written is left"


@pytest.mark.parametrize(
    "ends",
    ["[]", "5", "null", '{"0":[1e400,"aa"]}', '{"0":[165.7,"aa"]}', '{" 0 ":[1,"aa"]}', '{"0":1}', "{", '{"9":[1,""]}'],
)
def test_ends_of_another_form_are_damage(cli: Cli, tmp_path: Path, ends: str) -> None:
    file = fake_session(tmp_path / "a.mtl")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE meta SET value = ?, sum = ? WHERE key = 'ends'", (ends, check_sum("ends", ends)))
    for command in (("check", file), ("diff", file, file), ("dump", file), ("pack", file, tmp_path / "out.mtl")):
        status, _, err = cli(*command)
        assert status == 3 and "damaged content" in err and err.count("\n") == 1, (command, err)


@pytest.mark.parametrize("where", ["seq > 60", "branch = 1", "1"])
def test_a_closed_file_whose_end_is_gone_is_damaged(cli: Cli, tmp_path: Path, where: str) -> None:
    file = fake_session(tmp_path / "a.mtl", (NEW, "run 4", "goto @40", "accept 1"))
    packed = tmp_path / "packed.mtl"
    assert cli("pack", file, packed)[0] == 0
    for one in (file, packed):
        assert cli("check", one)[0] == 0
        with closing(sqlite3.connect(one)) as database, database:
            database.execute(f"DELETE FROM event WHERE {where}")
        status, _, err = cli("check", one)
        assert status == 3 and "it was closed at" in err, err


def test_a_recording_without_its_branches_is_damaged(cli: Cli, tmp_path: Path) -> None:
    file = fake_session(tmp_path / "a.mtl")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM branch")
    status, _, err = cli("check", file)
    assert status == 3 and "damaged content (branch 0" in err


def test_a_prompt_that_is_no_text_is_refused(cli: Cli) -> None:
    status, _, err = cli("run", "--prompt", "\udcff", "--device", "cpu")
    assert status == 3 and "not UTF-8" in err and err.count("\n") == 1


def test_errors_quote_names_without_control_characters(cli: Cli) -> None:
    status, _, err = cli("check", "no\x1b[31msuch")
    assert status == 3 and "no\\e[31msuch" in err and "\x1b" not in err


def test_a_recording_that_stopped_is_told_and_fails(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "r.mtl"
    monkeypatch.setattr("sessions.store.Store", partial(Store, limit_bytes=300_000))
    status, _, err = cli(
        "record", file, "--prompt", "Hello.", "--max-tokens", "60", "--level", "full", "--device", "cpu"
    )
    assert status == 1 and "no space left" in err and "the file ends earlier" in err
    monkeypatch.undo()
    assert cli("check", file)[0] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_output_is_named(tmp_path: Path) -> None:
    file = fake_session(tmp_path / "a.mtl")
    command = f"{sys.executable} -m inspector.cli dump {file} >/dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("metrale-inspect: standard output: ") and done.stderr.count("\n") == 1


def test_a_closed_output_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m inspector.cli info >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
