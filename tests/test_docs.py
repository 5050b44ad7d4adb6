"""Pages, comments and docstrings are true: links, tables, Python, commands and named files; and the pages are short."""

import ast
import contextlib
import functools
import importlib.util
import io
import re
import shlex
import subprocess
import tokenize
from pathlib import Path
from types import ModuleType

import pytest

from experiments.__main__ import ON_GRAPHS, OTHERS
from experiments.__main__ import parser as experiments
from experiments.plan import plan_names, read_plan
from graphcaps import cli
from graphcaps.cli.commands import COMMANDS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
OTHER_PAGES = [ROOT / path for path in ("CONTRIBUTING.md", "experiments/README.md", "graphcaps/kernels/cpu/README.md")]
PAGES = {page: page.read_text(encoding="utf-8") for page in (README, *DOCS, *OTHER_PAGES)}
# Placeholders in the pages' commands, and values that graphcaps takes.
STANDS_FOR = {"--image K": "0", "--dataset NAME": "digits", "--model NAME": "compact", "--routing NAME": "dynamic"}
PYTHON = {page: re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) for page, text in PAGES.items()}
TRAINS = ("by-hand", "graph-page", "own-graph", "own-pictures", "train", "watch")  # these pages train for seconds

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@functools.cache
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.tables = functools.cache(module.tables)
    return module


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return {path for path in listed.stdout.splitlines() if (ROOT / path).exists()}


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def in_code(text: str) -> list[str]:
    """Lines of code blocks, and code inside sentences, which may contain a line break."""
    blocks = re.findall(r"^```(?:\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    inline = [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", without_blocks(text))]
    return [line for block in blocks for line in block.splitlines()] + inline


def links(page: Path) -> list[tuple[Path, str]]:
    """The files and anchors inside the project that the page's links and pictures lead to."""
    targets = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", without_blocks(PAGES[page]))):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            targets.append(((page.parent / path).resolve() if path else page, anchor))
    return targets


def anchors(text: str) -> set[str]:
    """The headings' anchors as GitHub makes them: lower case, hyphens for blanks, other signs are dropped."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_read_in_five_minutes_and_the_pages_stay_short():
    assert len(PAGES[README].splitlines()) <= 200 and len(PAGES[README].split()) <= 1250
    assert sum(len(PAGES[page].split()) for page in DOCS) <= 27_000


@every_page
def test_every_link_leads_to_a_file_and_a_heading(page):
    for target, anchor in links(page):
        assert target.exists() and target.is_relative_to(ROOT), f"{page.name}: {target} isn't there"
        if anchor and target in PAGES:
            assert anchor in anchors(PAGES[target]), f"{page.name}: {target.name} has no heading {anchor}"


def test_every_page_is_reached_from_the_readme():
    reached, following = set(), [README]
    while following:
        page = following.pop()
        if page not in reached:
            reached.add(page)
            following += [target for target, _ in links(page) if target in PAGES]
    assert {page.name for page in PAGES.keys() - reached} == set()


def test_the_tables_are_those_of_the_committed_results_and_of_the_code():
    made = tables().with_tables(PAGES)
    changed = [page.name for page, text in PAGES.items() if made[page] != text]
    assert changed == [], "run: python docs/tables.py"


def test_every_module_says_what_it_is():
    assert [name for name, file in tables().modules().items() if not tables().purpose(file)] == []


def test_every_file_that_a_page_names_is_there():
    known = tracked()
    known |= {f"{parent}/" for path in known for parent in Path(path).parents}
    named = r"(?:^|\s)((?:graphcaps|viz|docs|experiments|tests|notebooks)/[\w./-]*)(?=$|[\s,:])"
    for page, text in PAGES.items():
        for path in (path for code in in_code(text) for path in re.findall(named, code)):
            where = path.removesuffix("NAME.py")  # a file that the reader writes
            assert {where, f"{where}/"} & known, f"{page.name} names {path}"


def remarks(file: Path) -> list[str]:
    """The comments and docstrings of a Python or JavaScript file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".js":
        return re.findall(r"(?<!:)//.*|/\*[\s\S]*?\*/", text)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr))
    return comments + [node.value for node in strings if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_every_file_that_a_comment_or_docstring_names_is_there():
    """A name counts from the repository, from graphcaps/, from the file's folder, or from its package."""
    missing = []
    for path in sorted(tracked()):
        file = ROOT / path
        if path.split("/")[0] not in ("graphcaps", "viz", "experiments", "tests") or file.suffix not in (".py", ".js"):
            continue
        package = next((folder for folder in file.parents if (folder / "__init__.py").exists()), ROOT)
        for name in re.findall(r"(?<![\w/.-])[\w./-]*\w\.(?:py|js|md)\b", "\n".join(remarks(file))):
            folders = (ROOT, ROOT / "graphcaps", file.parent, package)
            example = "NAME" in name or name.startswith("./")
            if not example and not any((folder / name).is_file() for folder in folders):
                missing.append(f"{path} names {name}")
    assert missing == []


def says_so(printed: str, comment: str) -> bool:
    """True if a printed line is what the comment beside its ``print`` says.

    >>> says_so("torch.Size([2, 3])", "[2, 3]: two of three"), says_so("tensor(0.1)", "0: the same numbers")
    (True, False)
    """
    if shape := re.match(r"\[[\d, ]+\]", comment):
        return printed in (f"torch.Size({shape[0]})", f"({shape[0][1:-1]})")
    number = float(re.search(r"\d[\d.e-]*", printed)[0].rstrip("."))
    if comment.startswith("0:"):
        return abs(number) < 1e-6
    below = re.match(r"below (?:[^=]* = )?([\d.]+)", comment)
    return below is not None and 0 < number < float(below[1])


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] * (page.stem in TRAINS), id=page.stem)
        for page in PYTHON
        if PYTHON[page]
    ],
)
def test_python_prints_what_its_comments_say(page, tmp_path, monkeypatch):
    """A page's blocks run one after the other, each with the names of those before it."""
    monkeypatch.chdir(tmp_path)  # some blocks save files
    names: dict = {}
    for code in PYTHON[page]:
        if "import pyg" in code:
            pytest.importorskip("torch_geometric", reason='needs pip install -e ".[pyg]"')
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(page), "exec"), names)
        comments = [line.partition("# ")[2] for line in code.splitlines() if line.startswith("print(")]
        printed = said.getvalue().splitlines()
        assert len(printed) == len(comments)
        for line, comment in zip(printed, comments, strict=True):
            assert says_so(line, comment), f"{page.name}: printed {line}, but the comment says {comment}"


def test_the_plans_on_the_page_about_comparisons_can_be_trained(tmp_path):
    plans = re.findall(r"^```yaml\n(.*?)^```", PAGES[ROOT / "docs" / "compare.md"], re.DOTALL | re.MULTILINE)
    for plan, trainings in zip(plans, (6,), strict=True):
        (tmp_path / "mine.yaml").write_text(plan)
        assert len(read_plan(str(tmp_path / "mine.yaml")).cells) == trainings


def commands(text: str) -> list[list[str]]:
    """The words after ``graphcaps`` of each command line in a text, without comments."""
    lines = []
    for line in in_code(text):
        if match := re.match(r"graphcaps ([a-z-].*)", line):
            lines.append(shlex.split(match[1], comments=True))
    return lines


@pytest.fixture
def parsed(monkeypatch) -> list[dict]:
    """A list that gets the arguments of each called command; commands do nothing else."""
    given = []

    def idle(command):
        @functools.wraps(command)
        def noted(**arguments):
            given.append(arguments)

        return noted

    idled = {name: idle(command) for name, command in COMMANDS.items()}
    monkeypatch.setattr("graphcaps.cli.commands.COMMANDS", idled)
    return given


def test_every_command_line_is_one_that_graphcaps_takes(parsed, capsys):
    lines = {tuple(words) for text in PAGES.values() for words in commands(text)}
    assert len(lines) > 40 and {words[0] for words in lines} - {"--help", "--version"} == COMMANDS.keys()
    for words in lines:
        if len(words) == 1:  # may be the command's name in a sentence
            continue
        pairs = zip(("", *words), words, strict=False)
        line, before = [STANDS_FOR.get(f"{flag} {word}", word) for flag, word in pairs], len(parsed)
        assert cli.main(line) == 0, f"graphcaps {shlex.join(words)}: {capsys.readouterr().out}"
        if words[-1] != "--help":
            assert len(parsed) == before + 1
            if "config" in parsed[-1]:
                parsed[-1]["config"].check()


def test_every_experiment_that_a_page_names_can_be_asked_for():
    lines = {line for text in PAGES.values() for line in in_code(text) if line.startswith("python -m experiments ")}
    known = {*plan_names(), *ON_GRAPHS, *(name.partition(" ")[0] for name in OTHERS), "mine.yaml", "FILE"}
    for line in lines:
        words = shlex.split(line, comments=True)[3:]
        assert not words or words[0] in known, line
        experiments().parse_args(words)
    assert len(lines) > 10
