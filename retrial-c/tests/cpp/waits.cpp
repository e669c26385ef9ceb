// Waits for conditions by guards, with exceptions and without.
#include "check.hpp"
#include <retrial_cond.hpp>
#include <thread>

using namespace std::chrono_literals;
using retrial::deadline;

// Takes a token of the named mutex by codes alone.
static void takes(retrial::instance &instance) {
    int code;
    retrial::session own(instance, "takes", code);
    retrial::mutex<long> tokens(instance, "tokens", "test", code);
    retrial::condition some(instance, "some tokens", code);
    CHECK(code == RETRIAL_OK);
    auto held = tokens.x(own, code);
    while (*held == 0) {
        some.wait(held, code, deadline::in(20s));
        CHECK(code == RETRIAL_OK && held);
    }
    --*held;
}

int main() {
    int code;
    auto instance = retrial::instance::anonymous(code);
    retrial::session session(instance, "main", code);
    retrial::mutex<long> tokens(instance, "tokens", "test", code);
    retrial::condition some(instance, "some tokens", code);
    std::thread takers[2] = {std::thread(takes, std::ref(instance)), std::thread(takes, std::ref(instance))};
    for (auto &taker : takers) {
        std::this_thread::sleep_for(20ms);
        auto held = tokens.x(session, code);
        ++*held;
        &taker == takers ? some.signal(session, code) : some.broadcast(session, code);
        CHECK(code == RETRIAL_OK);
    }
    for (auto &taker : takers) {
        taker.join();
    }
    auto held = tokens.x(session, code);
    CHECK(*held == 0);
    some.wait(held, code, deadline::in(1ms));
    CHECK(code == RETRIAL_TIMED_OUT && held && tokens.raw()->word != 0);
    held.release(code);
    some.wait(held, code, deadline::now());
    CHECK(code == RETRIAL_INVALID); // an empty guard
    retrial_cond own = RETRIAL_COND_INIT;
    retrial::condition in_a_struct(own);
    in_a_struct.signal(session, code);
    CHECK(code == RETRIAL_OK && in_a_struct.raw() == &own);
#ifdef RETRIAL_THROWS_
    held = tokens.x(session);
    CHECK(!some.wait(held, deadline::in(1ms)) && held);
    some.signal(session);
    some.broadcast(session);
    // The dead holder: a thread that ends with the mutex.
    std::thread dies([&] {
        retrial::session dying(instance, "dies");
        std::this_thread::sleep_for(50ms);
        CHECK(retrial_mutex_get(dying.handle(), tokens.raw(), RETRIAL_X, nullptr) == RETRIAL_OK);
        new retrial::session(std::move(dying)); // ends with its thread
    });
    try {
        some.wait(held);
        CHECK(false);
    } catch (const retrial::error &error) {
        CHECK(error.code() == RETRIAL_OWNER_DIED && !held);
    }
    dies.join();
#endif
    return 0;
}
