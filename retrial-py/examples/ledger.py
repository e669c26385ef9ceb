"""The ledger of retrial-c/examples/ledger.c in Python: what it is and what it does is said there.

    python3 ledger.py INSTANCE
"""

import os
import sys

import retrial

BEGUN, DONE, TOLD = 0, 1, 2
IN_PYTHON = 2  # after C and C++, before Rust


def write_entry(book):
    assert book[BEGUN] == book[DONE], "half an entry, and no death was told"
    entry = book[BEGUN] + 1
    book[BEGUN] = entry
    os.sched_yield()  # the others run while there is half an entry
    book[DONE] = entry
    return entry


def repair(held):
    held.data[TOLD + IN_PYTHON] += 1
    held.data[BEGUN] = held.data[DONE]  # takes half an entry back
    held.consistent()


def main(name):
    ledger = retrial.Instance.open(name).mutex("ledger", "ledgers", size=48, format="Q")
    or_hold = ledger.exclusive(at="repair", on_death="hold")
    while True:
        try:
            with ledger as held:
                entry = write_entry(held.data)
            # A line is one write: a kill leaves all of it or nothing.
            os.write(1, b"%d\n" % entry)
        except retrial.OwnerDied:  # in Python a death is raised
            with or_hold as held:
                if held.owner_died:  # or another process was told meanwhile
                    repair(held)


if __name__ == "__main__":
    main(sys.argv[1])
