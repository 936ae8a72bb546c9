"""Names and docstrings that a reader can search for and understand at once."""

import ast
from collections import defaultdict

from rules.source import PRODUCT, TOOLS, files

QUESTION_WORDS = {"What", "Who", "Whom", "Whose", "Where", "When", "Why", "How", "Whether", "Which", "Those"}
MAX_SHARE = 0.02


def test_docstrings_begin_with_a_noun_or_a_verb():
    every = []
    for file in files():
        for node in (file.tree, *file.definitions()):
            text = ast.get_docstring(node)
            if text:
                every.append(
                    (
                        text.split(maxsplit=1)[0].strip(",:'"),
                        f"{file.path}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}",
                    )
                )
    questions = [place for word, place in every if word in QUESTION_WORDS]
    assert len(questions) < MAX_SHARE * len(every), (
        f"{len(questions)} of {len(every)} docstrings begin with a question word:\n" + "\n".join(questions)
    )


def test_a_public_class_name_occurs_once():
    places = defaultdict(list)
    for file in files(*PRODUCT, *TOOLS):
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{file.path}:{node.lineno}")
    twice = [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]
    assert not twice, "rename all but one:\n" + "\n".join(twice)
