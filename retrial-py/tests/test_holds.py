"""Holds and mutexes that several threads, objects and children of fork have a part in."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

import retrial
from test_retrial import Case, count, in_child, until


class Entered(Case):
    def test_a_hold_that_is_entered_in_s_is_refused_to_other_threads(self):
        hold = self.mutex.examine()

        def enter_beside():
            with self.assertRaisesRegex(retrial.NotHeld, r"mutex\.examine\(\)"):
                hold.__enter__()
            # One of its own is had.
            with self.mutex.examine() as other:
                return other.mode

        with hold as held:
            held.share()
            self.assertEqual(self.other_thread(enter_beside), "E")
            self.assertEqual(held.mode, "S")
        self.assertFalse(self.mutex.locked())
        with hold as held:
            self.assertEqual(held.mode, "E", "it is entered again")

    def test_a_hold_that_waits_in_a_conversion_is_not_lost_to_another_thread(self):
        hold, examined, left = self.mutex.examine(), threading.Event(), threading.Event()

        def examine():
            with self.mutex.examine():
                examined.set()
                left.wait(30)

        def enter_beside():
            try:
                with hold:
                    pass
            except retrial.NotHeld:
                pass  # it was got before the conversion

        def waits_in_e():
            return [s["waits_in"] for s in self.instance.sessions()].count("E")

        threads = [threading.Thread(target=target) for target in (examine, enter_beside)]
        with hold as held:
            held.share()
            threads[0].start()
            examined.wait()
            threads[1].start()
            until(lambda: waits_in_e() == 1)
            threading.Thread(target=lambda: until(lambda: waits_in_e() == 2) or left.set()).start()
            held.examine()
            self.assertEqual(held.mode, "E")
        for thread in threads:
            thread.join(30)
        self.assertFalse(self.mutex.locked())

    def test_what_a_thread_left_when_it_ended_is_entered_by_others(self):
        hold = self.mutex.examine(timeout=10, on_death="hold")

        def enter(held):
            held.__enter__()
            return held.data[0]

        self.assertEqual(self.other_thread(lambda: enter(hold)), 0)
        with hold as held:
            self.assertTrue(held.owner_died)
            held.consistent()
            self.assertEqual((held.mode, held.data[0]), ("E", 0))
        self.assertEqual(self.other_thread(lambda: enter(self.mutex)), 0)
        with hold as held:
            held.consistent()
        self.assertTrue(self.mutex.acquire(timeout=10))
        self.assertEqual(self.mutex.data[0], 0)
        self.mutex.release()


    def test_a_hold_of_s_is_entered_by_others_when_its_thread_has_ended_and_by_a_child(self):
        hold = self.mutex.shared()

        def enter():
            try:
                with hold as held:
                    return held.mode == "S"
            except retrial.NotHeld:
                return False  # the kernel ends a thread some time after `join`

        with hold:
            self.assertEqual(in_child(enter), True)
            self.assertFalse(enter())
        self.assertTrue(enter())
        self.other_thread(hold.__enter__)
        until(enter)
        with self.mutex:
            self.assertTrue(self.mutex.locked())
        self.assertFalse(self.mutex.locked())


class Views(Case):
    def test_a_view_that_is_left_concerns_no_later_hold(self):
        with self.assertRaisesRegex(KeyError, "mine"):
            with self.mutex as held:
                left = held.data[0:1]
                raise KeyError("mine")
        self.assertIsNone(self.other_thread(lambda: count(self.mutex, 2)))
        self.assertTrue(self.mutex.acquire())
        self.mutex.release()
        with self.mutex as held:
            held.data[0] += 1
            self.assertEqual(left[0], 3)
            again = held.data[0:1]
            del left
            with self.assertRaisesRegex(BufferError, "views"):
                held.share()
            del again
            held.share()

    def test_a_view_that_is_left_is_told_of_once(self):
        with self.assertRaises(BufferError):
            with self.mutex as held:
                left = memoryview(held)
        count(self.mutex, 1)
        left.release()
        with self.assertRaises(BufferError):
            with self.mutex as held:
                left = memoryview(held)
        del left


class Objects(Case):
    """Several objects of a mutex."""

    def test_a_mutex_whose_object_is_gone_is_released_by_another_one(self):
        self.instance.mutex("n").acquire()
        gc.collect()
        again = self.instance.mutex("n")
        self.assertIs(again.acquire(False), False)
        self.assertIsInstance(self.other_thread(again.release), retrial.NotHeld)
        self.assertTrue(again.locked())
        again.release()
        self.assertFalse(again.locked())
        self.instance.mutex("n").acquire()
        with self.assertRaisesRegex(retrial.Error, "holds"):
            self.instance.close()
        self.instance.mutex("n").release()
        self.instance.close()

    def test_an_object_of_the_mutex_sees_and_releases_what_another_one_got(self):
        bytewise, copy = self.instance.mutex("m"), pickle.loads(pickle.dumps(self.mutex))
        with self.mutex as held:
            held.data[0] = 0x0102
            views = [held.data, bytewise.data, copy.data]
            self.assertEqual([view.format for view in views], ["q", "B", "q"])
            self.assertIs(views[1], bytewise.data)
            self.assertEqual((views[1][0], views[1][1], views[2][0]), (2, 1, 0x0102))
        for view in views:
            with self.assertRaisesRegex(ValueError, "released"):
                view[0]
        copy.acquire()
        view = copy.data
        bytewise.release()
        with self.assertRaisesRegex(ValueError, "released"):
            view[0]
        for mutex in [bytewise, copy, self.mutex]:
            with self.assertRaises(retrial.NotHeld):
                mutex.release()

    def test_all_objects_say_the_type_that_the_mutex_has(self):
        hits, again = self.instance.mutex("hits", "counters"), self.instance.mutex("hits")
        self.assertEqual((hits.type, again.type), ("counters", "counters"))
        self.instance.set("mutex_spin_count", 7, type=again.type)
        self.assertIn("counters", repr(again))
        self.assertEqual(pickle.loads(pickle.dumps(again)).type, "counters")

    def test_an_object_that_is_gone_while_a_view_is_there_leaves_nothing(self):
        self.instance.mutex("n").acquire()
        self.instance.mutex("n").data[0] = 7
        left = self.instance.mutex("n").data[0:1]
        with self.assertRaises(BufferError):
            self.instance.mutex("n").release()
        with self.instance.mutex("n") as held:
            self.assertEqual((held.data[0], left[0]), (7, 7))


class Finalizers(Case):
    """Python's code that runs amid a call: that of finalizers, callbacks and properties."""

    def test_a_finalizer_that_closes_the_instance_ends_a_get_that_looks_its_caller_up(self):
        # In a process of its own: the session's memory was used after it was freed.
        code = """if True:
            import gc, retrial, sys
            instance = retrial.Instance.attach(sys.argv[1])
            mutex, kept = instance.mutex("m", format="q"), []
            with instance.mutex("other"): pass

            class Cycle:
                def __init__(self): self.itself = self
                def __del__(self): instance.close()

            gc.collect()
            Cycle()
            try:
                while True:
                    # The collector runs when enough objects were made, of which the get makes some.
                    kept.append([])
                    mutex.acquire(timeout=0.00001)
            except retrial.Closed:
                pass
        """
        with self.mutex:
            subprocess.run([sys.executable, "-c", code, self.path], check=True, timeout=60)


    def test_what_a_callback_of_a_view_has_given_back_is_not_given_back_again(self):
        def again():
            self.mutex.release()
            self.assertTrue(self.mutex.acquire())

        def by_another_thread():
            self.mutex.release()
            self.other_thread(self.mutex.acquire)

        for callback in [self.mutex.release, again, by_another_thread]:
            for call in [self.mutex.release, lambda: held.share()]:
                held = self.mutex.__enter__()
                called = weakref.ref(held.data, lambda _: callback())
                with self.subTest(callback), self.assertRaises(retrial.NotHeld):
                    call()
                self.assertIsNone(called())
                # What was got meanwhile is still held.
                self.assertEqual(self.mutex.locked(), callback != self.mutex.release)
                if callback == again:
                    self.mutex.release()
                elif callback == by_another_thread:
                    with self.mutex.exclusive(timeout=30, on_death="hold") as recovered:
                        recovered.consistent()

    def test_a_get_amid_the_first_get_of_a_thread_makes_its_session(self):
        case = self

        class Worker(threading.Thread):
            asked = 0

            @property
            def name(self):
                self.asked += 1
                # As a signal handler or a finalizer does that runs here.
                if self.asked == 1:
                    count(case.mutex, 1)
                return "worker"

            @name.setter
            def name(self, name):
                pass

            def run(self):
                other = retrial.Instance.anonymous().mutex("other")
                with case.mutex as held:
                    with other:
                        self.sessions = [s["name"] for s in case.instance.sessions()]
                    held.data[0] += 1

        worker = Worker()
        worker.start()
        worker.join(30)
        self.assertEqual(worker.sessions, ["worker"])
        with self.mutex as held:
            self.assertEqual(held.data[0], 2)

    def test_a_get_fails_whose_session_is_asked_for_while_the_instance_is_closed(self):
        class Closer(threading.Thread):
            name = property(lambda closer: case.instance.close() or "closer", lambda closer, name: None)

            def run(self):
                with case.assertRaises(retrial.Closed):
                    case.mutex.acquire()
                self.is_told = True

        case, closer = self, Closer()
        closer.start()
        closer.join(30)
        self.assertTrue(closer.is_told)
        self.assertEqual(retrial.Instance.attach(self.path).sessions(), [])


class Locks(Case):
    """What it has of `threading.Lock`."""

    def test_the_thread_that_has_it_is_told_no_by_one_try(self):
        lock = threading.Lock()
        for held in [lock, self.mutex, self.mutex.exclusive(), self.mutex.shared()]:
            tried = lock if held is lock else self.mutex
            with held:
                for arguments in [(False,), (0,), (True, 0), (1, 0.0)]:
                    self.assertIs(tried.acquire(*arguments), False)
        with self.mutex:
            for wait in [self.mutex.acquire, lambda: self.mutex.acquire(1, 0.01), self.mutex.__enter__]:
                with self.assertRaises(retrial.Deadlock):
                    wait()

    def test_flags_are_what_bool_takes(self):
        class Wrong:
            def __bool__(self):
                raise KeyError("no flag")

        numbers, others = [1, 0, -1], [2.5, None, "yes", []]
        # Before 3.12 the lock of Python takes numbers alone.
        for lock, flags in [(threading.Lock(), numbers), (self.mutex, numbers + others)]:
            for flag in flags:
                self.assertIs(lock.acquire(flag), True)
                lock.release()
            self.assertIs(lock.acquire(blocking=1, timeout=1), True)
            lock.release()
            with self.assertRaises(ValueError):
                lock.acquire(0, 1)
            self.assertFalse(lock.locked())
        with self.assertRaises(KeyError):
            self.mutex.acquire(Wrong())

    def test_a_condition_waits_and_is_notified(self):
        condition = threading.Condition(self.mutex)
        for call in [condition.notify, condition.wait]:
            with self.assertRaisesRegex(RuntimeError, "un-acquired"):
                call()
        with condition as held:
            self.assertIs(condition.wait(0.01), False)
            self.assertEqual(held.data[0], 0)

        def take():
            with condition as held:
                got = condition.wait_for(lambda: held.data[0] > 0, timeout=30)
                held.data[0] -= 1
                return got

        answers = []
        threads = [threading.Thread(target=lambda: answers.append(take())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in threads[1:]:
            with condition as held:
                held.data[0] += 1
                condition.notify()
        with condition as held:
            held.data[0] += 1
            condition.notify_all()
        for thread in threads:
            thread.join(30)
        self.assertEqual(answers, [True] * 4)
        self.assertFalse(self.mutex.locked())
        with self.mutex as held:
            self.assertEqual(held.data[0], 0)

    def test_a_condition_whose_wait_finds_a_dead_holder_says_so(self):
        condition = threading.Condition(self.mutex)
        with self.assertRaises(retrial.OwnerDied):
            with condition:
                thread = threading.Thread(target=lambda: self.mutex.acquire())
                thread.start()
                condition.wait(0.05)
        thread.join(30)


class Instances(Case):
    def test_what_is_pickled_is_the_same_instance_after_a_change_of_directory(self):
        self.addCleanup(os.chdir, os.getcwd())
        for directory in ["one", "two"]:
            os.mkdir(f"{self.directory.name}/{directory}")
            os.chdir(f"{self.directory.name}/{directory}")
            instance = retrial.Instance.create("./i")
            if directory == "one":
                mutex = instance.mutex("m", format="q")
                count(mutex, 7)
        with pickle.loads(pickle.dumps(mutex)) as held:
            self.assertEqual((held.data[0], mutex.instance.name), (7, "./i"))

    def test_what_a_thread_holds_of_an_instance_that_another_closes_is_released(self):
        with self.mutex as held:
            self.other_thread(self.instance.close)
            with retrial.Instance.anonymous().mutex("other"):
                held.data[0] = 5
            self.assertTrue(self.mutex.locked())
        self.assertFalse(self.mutex.locked())
        with retrial.Instance.anonymous().mutex("other"):
            self.assertEqual(retrial.Instance.attach(self.path).sessions(), [])


class SignalsAndForks(Case):
    def signalled_while_it_waits(self, handler, *arguments):
        """Waits for the mutex; meanwhile a signal handler runs."""
        entered = threading.Event()

        def hold():
            with self.mutex:
                entered.set()
                until(lambda: any(s["waits_for"] == "m" for s in self.instance.sessions()))
                time.sleep(0.1)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
                until(lambda: handled)

        def handle(*_):
            answer = None
            try:
                answer = handler()
            finally:
                handled.append(answer)

        handled = []
        before = signal.signal(signal.SIGUSR1, handle)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait()
        try:
            if self.mutex.acquire(*arguments):
                self.mutex.release()
        finally:
            thread.join(30)
        return handled

    def test_what_a_handler_raises_goes_before_what_acquire_says(self):
        for raised in [TimeoutError, retrial.TimedOut, retrial.Deadlock]:

            def handler():
                raise raised("the handler's")

            for arguments in [(), (True, 30)]:
                with self.subTest(raised), self.assertRaisesRegex(raised, "the handler's"):
                    self.signalled_while_it_waits(handler, *arguments)
        self.assertFalse(self.mutex.locked())

    def test_a_child_that_is_forked_while_its_parent_waits_gets_mutexes(self):
        other = self.instance.mutex("other", format="q")

        def child():
            count(other, 3)
            # The parent waits for this one; so can the child.
            return 5 if not self.mutex.acquire(timeout=0.05) else 6

        def handler():
            with self.assertRaisesRegex(retrial.Deadlock, "signal handler"):
                other.acquire()
            return in_child(child)

        self.assertEqual(self.signalled_while_it_waits(handler), [5])
        with other as held:
            self.assertEqual(held.data[0], 3)

    def test_a_child_that_has_got_mutexes_leaves_its_parents_with_as_any_other(self):
        code = """if True:
            import os, retrial, sys
            instance = retrial.Instance.attach(sys.argv[1])
            mutex, other = instance.mutex("m", format="q"), instance.mutex("other")
            with mutex, mutex.instance.mutex("third").examine():
                pid = os.fork()
                if pid == 0:
                    with other: pass
            if pid == 0:
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            with mutex.exclusive(timeout=0): pass
        """
        subprocess.run([sys.executable, "-c", code, self.path], check=True, timeout=60)

    def test_a_child_that_goes_on_with_its_parents_wait_is_told(self):
        pids = []

        def handler():
            pids.append(os.fork())
            return pids[0]

        parent = os.getpid()
        try:
            self.signalled_while_it_waits(handler)
        except BaseException as error:
            if os.getpid() == parent:
                raise
            os._exit(7 if isinstance(error, retrial.NotHeld) else 8)
        if os.getpid() != parent:
            os._exit(9)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]), 7)


if __name__ == "__main__":
    unittest.main()
