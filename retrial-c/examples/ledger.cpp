/* The ledger of ledger.c in C++: what it is and what it does is said there.
 *
 *   c++ -std=c++17 ledger.cpp $(pkg-config --cflags --libs retrial) -o ledger
 *   ./ledger INSTANCE */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <retrial.hpp>
#include <sched.h>

enum { in_c, in_cpp, in_python, in_rust, languages };

struct ledger {
    volatile uint64_t begun, done;     // entries; differ while one is half written
    volatile uint64_t told[languages]; // deaths of holders that were told in each language
};

static uint64_t write_entry(ledger &book) {
    if (book.begun != book.done) {
        std::fprintf(stderr, "half an entry, and no death was told\n");
        std::exit(1);
    }
    const uint64_t entry = book.begun + 1;
    book.begun = entry;
    sched_yield(); // the others run while there is half an entry
    book.done = entry;
    return entry;
}

// The form with a code holds the mutex whose holder has died. Another process may have been told meanwhile.
static void repair(retrial::mutex<ledger> &mutex, const retrial::session &session) {
    int code;
    auto book = mutex.x(session, code);
    if (code == RETRIAL_OWNER_DIED) {
        book->told[in_cpp] = book->told[in_cpp] + 1;
        book->begun = book->done; // takes half an entry back
        book.consistent();
    } else if (code != RETRIAL_OK) {
        throw retrial::error(code);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: ledger INSTANCE\n");
        return 2;
    }
    auto instance = retrial::instance::open(argv[1]);
    retrial::session session(instance, "C++");
    retrial::mutex<ledger> mutex(instance, "ledger", "ledgers");
    for (;;) {
        try {
            const uint64_t entry = write_entry(*mutex.x(session)); // released at the end of the statement
            std::printf("%llu\n", static_cast<unsigned long long>(entry));
            std::fflush(stdout); // a line is one write: a kill leaves all of it or nothing
        } catch (const retrial::error &error) { // in C++ a death is thrown
            if (error.code() != RETRIAL_OWNER_DIED) {
                throw;
            }
            repair(mutex, session);
        }
    }
}
