"""The module as programs use it: `cargo test -p retrial-py` builds it and runs this."""

import _thread
import ast
import gc
import inspect
import multiprocessing
import operator
import os
import pathlib
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import retrial

HERE = pathlib.Path(__file__).parent


def count(mutex, rounds):
    for _ in range(rounds):
        with mutex as held:
            held.data[0] += 1


def die_with(mutex, pipe):
    with mutex.exclusive(at="die") as held:
        held.data[0] = 77
        pipe.send("held")
        time.sleep(60)


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("did not happen in time")
        time.sleep(0.002)


def in_child(test):
    """Runs a function in a child of fork; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = test()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(self.directory.cleanup)
        self.path = self.directory.name + "/instance"
        self.instance = retrial.Instance.create(self.path, sessions=64)
        self.mutex = self.instance.mutex("m", format="q")

    def other_thread(self, do):
        """What a function gives in another thread."""
        answers = []

        def run():
            try:
                answers.append(do())
            except Exception as error:
                answers.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(30)
        return answers[0]


class Processes(Case):
    def counted(self, method):
        context = multiprocessing.get_context(method)
        workers = [context.Process(target=count, args=(self.mutex, 5000)) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
            self.assertEqual(worker.exitcode, 0)
        with self.mutex.shared() as held:
            self.assertEqual(held.data[0], 8 * 5000)

    def test_eight_forked_processes_count_exactly(self):
        self.counted("fork")

    def test_eight_spawned_processes_count_exactly(self):
        self.counted("spawn")

    def killed(self):
        mine, its = multiprocessing.Pipe()
        worker = multiprocessing.get_context("fork").Process(target=die_with, args=(self.mutex, its))
        worker.start()
        self.assertEqual(mine.recv(), "held")
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()

    def test_the_next_get_after_a_kill_is_told_until_the_data_are_declared_consistent(self):
        self.killed()
        with self.assertRaisesRegex(retrial.OwnerDied, "die|died"):
            with self.mutex:
                self.fail("entered")
        self.assertFalse(self.mutex.locked(), "given back")
        with self.mutex.exclusive(on_death="hold") as held:
            self.assertTrue(held.owner_died)
            self.assertEqual(held.data[0], 77)
        with self.mutex.exclusive(on_death="hold") as held:
            self.assertTrue(held.owner_died, "nobody has declared anything")
            held.consistent()
        with self.mutex.exclusive(on_death="hold") as held:
            self.assertFalse(held.owner_died)
        with self.mutex:
            pass
        self.assertTrue(any("owner died" in alert["text"] for alert in self.instance.alerts()))

    def test_a_child_of_fork_has_sessions_of_its_own_and_not_its_parents_holds(self):
        def child():
            assert not self.mutex.acquire(timeout=0.05), "the parent has it"
            try:
                self.mutex.release()
            except retrial.NotHeld:
                pass
            else:
                return 1
            try:
                held.data
            except retrial.NotHeld:
                pass
            else:
                return 2
            other = self.instance.mutex("other")
            with other:
                pids = [s["pid"] for s in self.instance.sessions() if s["holds"] == [("other", "X")]]
            return 0 if pids == [os.getpid()] else 3

        with self.mutex as held:
            held.data[0] = 1
            self.assertEqual(in_child(child), 0)
            held.data[0] += 1
        with self.mutex as held:
            self.assertEqual(held.data[0], 2)

    def test_a_child_that_leaves_its_parents_with_gives_nothing_back(self):
        code = """if True:
            import os, retrial, sys
            mutex = retrial.Instance.attach(sys.argv[1]).mutex("m", format="q")
            with mutex:
                pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            with mutex.exclusive(timeout=0): pass
        """
        subprocess.run([sys.executable, "-c", code, self.path], check=True, timeout=60)

    def test_what_is_pickled_is_the_same_mutex(self):
        copy = pickle.loads(pickle.dumps(self.mutex))
        with self.mutex:
            self.assertTrue(copy.locked())
            # One mapping and one session: it is known that the thread would wait for itself.
            with self.assertRaises(retrial.Deadlock):
                copy.acquire()
        self.assertEqual((copy.name, copy.type, copy.size), ("m", "python", 8))
        with self.assertRaisesRegex(TypeError, "anonymous"):
            pickle.dumps(retrial.Instance.anonymous())

    def test_ctrl_c_ends_an_endless_wait_at_once(self):
        code = """if True:
            import retrial, signal, sys, time
            # Jobs that a shell has put into the background ignore it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            mutex = retrial.Instance.attach(sys.argv[1]).mutex("m", format="q")
            print("waits", flush=True)
            begin = time.monotonic()
            try:
                mutex.acquire()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """
        with self.mutex:
            child = subprocess.Popen([sys.executable, "-c", code, self.path], stdout=subprocess.PIPE, text=True)
            self.assertEqual(child.stdout.readline(), "waits\n")
            until(lambda: any(s["waits_for"] == "m" for s in self.instance.sessions()))
            time.sleep(0.3)
            begin = time.monotonic()
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.stdout.readline(), "interrupted\n")
            self.assertLess(time.monotonic() - begin, 5)
            self.assertEqual(child.wait(), 0)
            child.stdout.close()
        [row] = [row for row in self.instance.figures() if row["mutex"] == "m"]
        self.assertEqual((row["waits"], row["gave_up"]), (1, 1), "one wait, in no slices")


class Threads(Case):
    def test_a_wait_lets_other_threads_run(self):
        progress = []
        entered = threading.Event()

        def wait():
            entered.set()
            with self.mutex:
                progress.append("got")

        thread = threading.Thread(target=wait)
        with self.mutex:
            thread.start()
            entered.wait()
            until(lambda: any(s["waits_for"] == "m" for s in self.instance.sessions()))
            time.sleep(0.05)
            self.assertEqual(progress, [])
        thread.join(30)
        self.assertEqual(progress, ["got"])

    def test_a_wait_says_where_it_is(self):
        def wait():
            return self.mutex.acquire(timeout=30)

        begin = inspect.getsourcelines(wait)[1]
        thread = threading.Thread(target=lambda: wait() and self.mutex.release())
        with self.mutex.exclusive(at="test: holds"):
            thread.start()
            until(lambda: any(s["waits_for"] == "m" for s in self.instance.sessions()))
            [waiter] = [s for s in self.instance.sessions() if s["waits_for"]]
            self.assertEqual(waiter["waits_at"], f"test_retrial.py:{begin + 1}")
            self.assertEqual(waiter["waits_in"], "X")
        thread.join(30)

    def test_places_and_names_that_are_no_text_keep_no_thread_from_the_mutex(self):
        def of_no_text(calls):
            code = compile("def call(calls): [call() for call in calls]", os.fsdecode(b"/tmp/caf\xe9.py"), "exec")
            names = {}
            exec(code, names)
            threading.Thread(target=names["call"], args=(calls,), name=os.fsdecode(b"w\xe9")).start()

        def of_no_python(calls):
            _thread.start_new_thread(list, (map(operator.call, calls),))

        for start, place in [(of_no_text, "caf\ufffd\ufffd\ufffd.py:1"), (of_no_python, "python")]:
            with self.subTest(place):
                released = threading.Event()
                with self.mutex:
                    start([self.mutex.acquire, self.mutex.release, released.set])
                    until(lambda: any(s["waits_for"] == "m" for s in self.instance.sessions()))
                    [waiter] = [s for s in self.instance.sessions() if s["waits_for"]]
                    self.assertEqual(waiter["waits_at"], place)
                self.assertTrue(released.wait(30))

    def test_a_reader_that_leaves_lets_the_thread_run_that_it_waits_for(self):
        code = """if True:
            import retrial, sys, threading
            mutex = retrial.Instance.attach(sys.argv[1]).mutex("m")
            examined, left = threading.Event(), threading.Event()

            def examine():
                with mutex.examine():
                    examined.set()
                    left.wait(0.2)

            with mutex.shared():
                thread = threading.Thread(target=examine)
                thread.start()
                examined.wait()
            left.set()
            thread.join()
            print("left", flush=True)
        """
        child = subprocess.run([sys.executable, "-c", code, self.path], capture_output=True, text=True, timeout=30)
        self.assertEqual((child.stdout, child.stderr), ("left\n", ""))

    def test_a_session_that_converts_holds_what_it_had(self):
        entered = threading.Event()

        def promote():
            with self.mutex.shared() as held:
                entered.set()
                until(lambda: len(self.instance.sessions()) == 2)
                held.examine()

        thread = threading.Thread(target=promote)
        thread.start()
        entered.wait()
        with self.mutex.examine():
            until(lambda: any(s["waits_for"] == "m" for s in self.instance.sessions()))
            found = sorted((s["waits_in"] or "", s["holds"]) for s in self.instance.sessions())
            self.assertEqual(found, [("", [("m", "E")]), ("E", [("m", "S")])])
        thread.join(30)

    def test_a_timeout_is_told(self):
        with self.mutex:
            for timeout, expected in [(0.02, retrial.TimedOut), (0, retrial.Busy)]:
                got = self.other_thread(self.mutex.exclusive(timeout=timeout).__enter__)
                self.assertIs(type(got), expected)
                self.assertIsInstance(got, TimeoutError)
            self.assertIs(self.other_thread(lambda: self.mutex.acquire(blocking=False)), False)
            self.assertIs(self.other_thread(lambda: self.mutex.acquire(timeout=0.01)), False)

    def test_waiting_for_oneself_is_refused(self):
        with self.mutex:
            for again in [self.mutex, self.mutex.shared(), self.mutex.examine(), self.mutex.exclusive(timeout=9)]:
                with self.assertRaises(retrial.Deadlock):
                    again.__enter__()
        with self.mutex.shared() as one, self.mutex.shared() as two:
            self.assertEqual((one.mode, two.mode), ("S", "S"))
            with self.assertRaises(retrial.NotHeld):
                one.__enter__()
        self.assertFalse(self.mutex.locked())

    def test_only_the_holding_thread_releases(self):
        self.mutex.acquire()
        self.assertIsInstance(self.other_thread(self.mutex.release), retrial.NotHeld)
        self.assertIsInstance(self.other_thread(lambda: self.mutex.data), retrial.NotHeld)
        self.assertTrue(self.mutex.locked())
        self.mutex.release()
        with self.assertRaises(retrial.NotHeld):
            self.mutex.release()

    def test_a_thread_that_ends_holding_is_told_of(self):
        self.other_thread(lambda: self.mutex.acquire() and None)
        # The kernel ends a thread some time after `join`.
        with self.assertRaises(retrial.OwnerDied):
            with self.mutex.exclusive(timeout=10):
                pass
        with self.mutex.exclusive(on_death="hold") as held:
            held.consistent()

    def test_a_thread_that_ends_leaves_no_session(self):
        for _ in range(200):
            self.other_thread(lambda: self.mutex.acquire() and self.mutex.release())
        until(lambda: len(self.instance.sessions()) <= 1)


class Data(Case):
    def test_modes_convert_and_say_what_may_be_written(self):
        with self.mutex.shared() as held:
            with self.assertRaises(TypeError):
                held.data[0] = 1
            with self.assertRaises(retrial.NotHeld):
                held.upgrade()
            held.examine(timeout=1)
            self.assertTrue(held.data.readonly)
            held.upgrade(timeout=1)
            held.data[0] = 5
            held.share()
            self.assertEqual((held.mode, held.data[0], held.data.readonly), ("S", 5, True))
            with self.assertRaises(retrial.NotHeld):
                held.consistent()
        with self.mutex.long_exclusive() as held:
            held.data[0] += 1
            self.assertEqual(held.mode, "LX")
        with self.assertRaises(TypeError):
            with self.mutex.shared() as held:
                struct.pack_into("q", held, 0, 1)

    def test_a_view_ends_with_the_hold(self):
        with self.mutex as held:
            view = held.data
            view[0] = 3
        with self.assertRaisesRegex(ValueError, "released"):
            view[0] = 4
        with self.assertRaises(retrial.NotHeld):
            held.data
        with self.assertRaises(retrial.NotHeld):
            memoryview(held)

    def test_a_view_that_outlives_the_hold_is_told_of_and_stays_in_mapped_memory(self):
        with self.assertRaises(BufferError):
            with self.mutex as held:
                cut = held.data[0:1]
        self.assertFalse(self.mutex.locked(), "released all the same")
        with self.assertRaises(BufferError):
            with self.mutex as held:
                kept = memoryview(held)
                held.share()
        del held, self.mutex
        self.instance.close()
        del self.instance
        gc.collect()
        self.assertEqual((cut[0], kept[0]), (0, 0))
        with self.assertRaises(KeyError):
            other = retrial.Instance.open(self.path).mutex("m", format="q")
            with other as held:
                more = held.data[0:1]
                raise KeyError("goes before what is said of the view")
        del more

    def test_bytes_and_numbers(self):
        text = self.instance.mutex("text", "strings", 5)
        with text as held:
            held.data[:] = b"hello"
            self.assertEqual(bytes(held), b"hello")
        with self.instance.mutex("text", "strings", 5).shared() as held:
            self.assertEqual(held.data.tobytes(), b"hello")
        pair = self.instance.mutex("pair", size=16, format="d")
        with pair as held:
            held.data[1] = 2.5
            self.assertEqual(list(held.data), [0.0, 2.5])
            self.assertEqual(struct.unpack_from("d", held, 8), (2.5,))
        empty = self.instance.mutex("empty", size=0)
        with empty as held:
            self.assertEqual(len(held.data), 0)


class BadInput(Case):
    def test_what_is_wrong_is_said(self):
        instance, mutex = self.instance, self.mutex
        for wrong, error in [
            (lambda: instance.mutex("m", size=16), retrial.Invalid),
            (lambda: instance.mutex("x" * 4000), retrial.Invalid),
            (lambda: instance.mutex(""), retrial.Invalid),
            (lambda: instance.mutex("a\0b"), retrial.Invalid),
            (lambda: instance.mutex("\udc80"), UnicodeEncodeError),
            (lambda: instance.mutex(7), TypeError),
            (lambda: instance.mutex("n", size=-1), OverflowError),
            (lambda: instance.mutex("n", size=2**63), retrial.Full),
            (lambda: instance.mutex("n", size=2**70), OverflowError),
            (lambda: instance.mutex("n", size=9, format="q"), retrial.Invalid),
            (lambda: instance.mutex("n", format="?"), retrial.Invalid),
            (lambda: instance.mutex("n", format="qq"), retrial.Invalid),
            (lambda: mutex.exclusive(timeout="1"), TypeError),
            (lambda: mutex.exclusive(timeout=-1), retrial.Invalid),
            (lambda: mutex.exclusive(timeout=float("nan")), retrial.Invalid),
            (lambda: mutex.exclusive(at=5), TypeError),
            (lambda: mutex.exclusive(on_death="ignore"), retrial.Invalid),
            (lambda: mutex.acquire(False, 1), ValueError),
            (lambda: mutex.acquire(timeout=-2), ValueError),
            (lambda: retrial.Mutex(), TypeError),
            (lambda: retrial.Hold(), TypeError),
            (lambda: retrial.Instance(), TypeError),
            (lambda: retrial.Instance.create(self.path), FileExistsError),
            (lambda: retrial.Instance.attach("no-such-instance"), FileNotFoundError),
            (lambda: retrial.Instance.attach(".."), retrial.Invalid),
            (lambda: retrial.Instance.open("x" * 65), retrial.Invalid),
            (lambda: retrial.Instance.open(self.path + "2", sessions=0), retrial.Invalid),
            (lambda: retrial.Instance.open(self.path + "2", sessions=-1), OverflowError),
            (lambda: retrial.Instance.attach(__file__), retrial.Error),
            (lambda: retrial.remove("no-such-instance"), retrial.Error),
            (lambda: instance.set("mutex_wait_shceme", 1), retrial.NotFound),
            (lambda: instance.set("mutex_wait_scheme", "best"), retrial.Invalid),
            (lambda: instance.set("mutex_spin_count", -1), retrial.Invalid),
            (lambda: instance.set("mutex_spin_count", 1, type="none such"), retrial.NotFound),
            (lambda: instance.figures(by="moon"), retrial.Invalid),
            (lambda: instance.alerts(-1), OverflowError),
        ]:
            with self.subTest(inspect.getsource(wrong).strip()), self.assertRaises(error) as raised:
                wrong()
            self.assertTrue(str(raised.exception))
        with mutex.exclusive(timeout=float("inf"), at="x" * 10_000):
            pass

    def test_a_closed_instance_is_refused(self):
        hold = self.mutex.exclusive()
        with self.mutex:
            with self.assertRaisesRegex(retrial.Error, "holds"):
                self.instance.close()
        self.instance.close()
        for late in [
            self.mutex.acquire,
            hold.__enter__,
            self.mutex.shared,
            self.instance.figures,
            self.instance.sessions,
            lambda: self.instance.params,
            lambda: self.instance.mutex("m"),
            lambda: self.instance.set("mutex_spin_count", 1),
            lambda: self.instance.set_action("late"),
        ]:
            with self.assertRaises(retrial.Closed):
                late()
        with retrial.Instance.attach(self.path) as again:
            with again.mutex("m", format="q"):
                self.assertTrue(self.mutex.locked())

    def test_exceptions_are_what_others_catch(self):
        for name in ["OwnerDied", "TimedOut", "Busy", "Deadlock", "NotHeld", "Closed", "Invalid", "Full"]:
            self.assertTrue(issubclass(getattr(retrial, name), retrial.Error), name)


    def test_a_second_interpreter_of_the_process_is_refused(self):
        try:
            import _interpreters as interpreters
        except ImportError:
            interpreters = __import__("_xxsubinterpreters")
        second = interpreters.create()
        self.addCleanup(interpreters.destroy, second)
        code = f"""if True:
            import sys
            sys.path.insert(0, {os.path.dirname(retrial.__file__)!r})
            try:
                import retrial
            except ImportError as error:
                assert "interpreter" in str(error), error
            else:
                raise AssertionError("imported")
        """
        self.assertIsNone(interpreters.run_string(second, code))


class Figures(Case):
    def test_rows_are_those_of_the_instance(self):
        count(self.mutex, 10)
        [row] = [row for row in self.instance.figures() if row["mutex"] == "m"]
        # One of the gets is that of its maker.
        self.assertEqual((row["type"], row["gets"] - 1, row["waits"], row["miss_ratio"]), ("python", 10, 0, 0.0))
        with self.mutex:
            got = self.other_thread(self.mutex.exclusive(timeout=0.02, at="late").__enter__)
            self.assertIsInstance(got, retrial.TimedOut)
            [session] = [s for s in self.instance.sessions() if s["holds"]]
            self.assertEqual((session["pid"], session["holds"]), (os.getpid(), [("m", "X")]))
        [place] = [row for row in self.instance.figures(by="location") if row["mutex"] == "m"]
        self.assertEqual((place["location"], place["event"]), ("late", "python: mutex X"))
        self.assertEqual((place["waits"], place["gave_up"]), (1, 1))
        self.assertGreater(place["wait_ns"], 15_000_000)

    def test_parameters_are_set_and_taken_back(self):
        before = self.instance.params
        self.instance.set("mutex_wait_scheme", "yield")
        self.instance.set("mutex_spin_count", 7)
        after = self.instance.params
        self.assertEqual((after["mutex_wait_scheme"], after["mutex_spin_count"]), ("yield", 7))
        self.instance.set("mutex_wait_scheme", None)
        self.instance.set("mutex_spin_count", None)
        self.assertEqual(self.instance.params, before)
        self.instance.set("mutex_spin_count", "9", type="python")
        self.assertEqual(self.instance.params, before, "of the type alone")
        self.instance.set_action("tests")
        self.assertEqual([s["action"] for s in self.instance.sessions()], ["tests"])


class Frames(unittest.TestCase):
    """What the page does with figures."""

    def setUp(self):
        self.instance = retrial.Instance.anonymous()
        # More rows than polars looks at to find the columns' types, of which only the last has figures.
        mutexes = [self.instance.mutex(f"m{number}") for number in range(150)]
        with mutexes[-1]:
            waiter = threading.Thread(target=mutexes[-1].acquire)
            waiter.start()
            until(lambda: any(s["waits_for"] for s in self.instance.sessions()))
        waiter.join()

    def frame(self, module):
        try:
            return __import__(module)
        except ImportError:
            self.skipTest(f"there is no {module}")

    def test_pandas(self):
        frame = self.frame("pandas").DataFrame(self.instance.figures())
        row = frame.sort_values("wait_ns", ascending=False).iloc[0]
        self.assertEqual((row["mutex"], row["misses"]), ("m149", 1))
        self.assertGreater(row["miss_ratio"], 0.0)

    def test_polars(self):
        frame = self.frame("polars").DataFrame(self.instance.figures(), infer_schema_length=None)
        row = frame.sort("wait_ns", descending=True).row(0, named=True)
        self.assertEqual((row["mutex"], row["misses"]), ("m149", 1))
        self.assertGreater(row["miss_ratio"], 0.0)

    def test_arrow(self):
        arrow = self.frame("pyarrow")
        table = arrow.Table.from_pylist(self.instance.figures())
        self.assertEqual(table.schema.field("miss_ratio").type, arrow.float64())
        self.assertEqual(table.num_rows, 150)


class Stubs(unittest.TestCase):
    def test_names_and_parameters_are_those_of_the_stubs(self):
        """Both ways: nothing is missing in the stubs, and nothing is in them that is not there."""
        tree = ast.parse((HERE.parent / "retrial.pyi").read_text())
        stubs, described = {}, {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                members = [m for m in node.body if isinstance(m, ast.FunctionDef)]
                stubs[node.name] = {m.name for m in members}
                described[node.name] = [ast.unparse(base) for base in node.bases]
                for member in members:
                    found = inspect.getattr_static(getattr(retrial, node.name), member.name)
                    if inspect.isgetsetdescriptor(found):
                        continue
                    names = [a.arg for a in member.args.posonlyargs + member.args.args + member.args.kwonlyargs]
                    actual = list(inspect.signature(getattr(getattr(retrial, node.name), member.name)).parameters)
                    expected = names[1:] if isinstance(found, classmethod) or "cls" in names else names
                    self.assertEqual(actual, expected, f"{node.name}.{member.name}")
            elif isinstance(node, ast.FunctionDef):
                stubs[node.name] = None
            elif isinstance(node, ast.AnnAssign):
                stubs[node.target.id] = None
        names = {name for name in dir(retrial) if not name.startswith("__") or name == "__version__"}
        # Installed it is a package, with the library as a module in it.
        there = {name for name in names if not inspect.ismodule(getattr(retrial, name))}
        self.assertEqual(there, set(stubs))
        for name, members in stubs.items():
            if members is None:
                continue
            kind = getattr(retrial, name)
            own = {n for n in vars(kind) if not n.startswith("_") or n in ("__enter__", "__exit__")}
            self.assertEqual(own, members, name)
            bases = [base.__name__ for base in kind.__bases__ if base is not object]
            self.assertEqual(bases, described[name], name)


if __name__ == "__main__":
    unittest.main()
