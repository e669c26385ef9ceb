"""What type checkers read of the stub; `test_retrial.py` compares its names with those of the module."""

import ast
import pathlib
import subprocess
import sys
import tempfile
import unittest

import retrial

STUB = pathlib.Path(__file__).parent.parent / "retrial.pyi"

# A line with `# wrong` is one that a checker refuses.
USES = """
import threading
import retrial

instance = retrial.Instance.open("stub")
mutex: retrial.Mutex = instance.mutex("m", "type", size=8, format="q")
kind: str = mutex.type
with mutex as held:
    view: memoryview = held.data
with mutex.exclusive(timeout=1, at="here", on_death="hold") as held:
    held.consistent()
mutex.exclusive(on_death="both")  # wrong
got: bool = mutex.acquire(False)
mutex.__exit__(None, None, None)
mutex.__exit__(3, None, None)  # wrong
def told(error: retrial.TimedOut) -> TimeoutError:
    return error
class Sub(retrial.Mutex):  # wrong
    pass
class Own(retrial.Error):
    pass
"""


class Stub(unittest.TestCase):
    def setUp(self):
        tree = ast.parse(STUB.read_text())
        self.classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]

    def test_classes_are_final_that_cannot_be_subclassed(self):
        self.assertGreater(len(self.classes), 3)
        for node in self.classes:
            try:
                type("Sub", (getattr(retrial, node.name),), {})
                is_final = False
            except TypeError:
                is_final = True
            self.assertEqual("final" in map(ast.unparse, node.decorator_list), is_final, node.name)

    def test_no_annotation_means_a_member_of_the_class(self):
        """In a class with a property `type`, `type[...]` is that property."""
        for node in self.classes:
            functions = [member for member in node.body if isinstance(member, ast.FunctionDef)]
            members = {function.name for function in functions}
            for function in functions:
                arguments = function.args
                everything = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
                said = [argument.annotation for argument in everything if argument.annotation] + [function.returns]
                names = {name.id for one in said for name in ast.walk(one) if isinstance(name, ast.Name)}
                self.assertEqual(names & members, set(), f"{node.name}.{function.name}")

    def test_mypy(self):
        try:
            import mypy  # noqa: F401
        except ImportError:
            self.skipTest("there is no mypy")
        with tempfile.TemporaryDirectory() as directory:
            (pathlib.Path(directory) / "uses.py").write_text(USES)
            (pathlib.Path(directory) / "retrial.pyi").write_text(STUB.read_text())
            call = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "retrial.pyi", "uses.py"]
            found = subprocess.run(call, cwd=directory, capture_output=True, text=True).stdout.splitlines()
        places = [line.split(": ")[0] for line in found if ": error: " in line]
        lines = enumerate(USES.splitlines(), 1)
        self.assertEqual(places, [f"uses.py:{number}" for number, line in lines if "# wrong" in line], found)


if __name__ == "__main__":
    unittest.main()
