"""Holds and mutexes that several threads, objects and children of fork have a part in."""

import threading
import unittest

import retrial
from test_retrial import Case, count, until


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


if __name__ == "__main__":
    unittest.main()
