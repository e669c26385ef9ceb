// Guards, conversions, the locks of the standard library, a killed holder. The argument is the instance's path.
#include "check.hpp"
#include <csignal>
#include <mutex>
#include <retrial.hpp>
#include <shared_mutex>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;
using retrial::mode;

struct count {
    long value;
};

static void guards(retrial::instance &instance) {
    retrial::mutex<count> mutex(instance, "count", "test");
    retrial::session one(instance, "one"), other(instance, "other");
    {
        auto held = mutex.x(one);
        held->value = 7;
        auto moved = std::move(held);
        CHECK(!held && bool(moved) && (*moved).value == 7);
        int code;
        CHECK(!mutex.get<mode::s>(other, code, retrial::deadline::now()) && code == RETRIAL_BUSY);
        CHECK(!mutex.get<mode::x>(other, code, retrial::deadline::in(2ms)) && code == RETRIAL_TIMED_OUT);
        auto shared = std::move(moved).share();
        CHECK(!moved && shared->value == 7 && mutex.s(other)->value == 7);
        auto reader = mutex.s(other);
        auto examines = std::move(shared).examine();
        CHECK(!std::move(examines).upgrade(code, retrial::deadline::now()) && code == RETRIAL_BUSY && bool(examines));
        reader.release();
        auto alone = std::move(examines).upgrade();
        alone->value++;
    }
    CHECK(mutex.lx(other)->value == 8);
    CHECK(mutex.e(one)->value == 8);
    CHECK(mutex.raw()->word == 0);
}

/* A guard that has no mutex any more lends no data. */
static void without_a_mutex(retrial::instance &instance) {
    retrial::mutex<count> mutex(instance, "count", "test");
    retrial::session session(instance);
    auto held = mutex.x(session);
    auto moved = std::move(held);
    CHECK(held.operator->() == nullptr && moved.operator->() == mutex.data());
    moved.release();
    CHECK(moved.operator->() == nullptr);
    int code;
    moved.release(code);
    CHECK(code == RETRIAL_OK); /* there is none */
    moved.consistent(code);
    CHECK(code == RETRIAL_INVALID);
    auto first = mutex.x(session);
    CHECK(!mutex.get<mode::x>(session, code) && code == RETRIAL_DEADLOCK);
    auto none = mutex.get<mode::x>(session, code, retrial::deadline::now());
    CHECK(!none && none.operator->() == nullptr);
}

static void deadlines() {
    using retrial::deadline;
    using clock = std::chrono::steady_clock;
    const auto now = deadline::now().ns(), never = deadline().ns();
    CHECK(deadline::at(clock::time_point::min()).ns() == now && deadline::at(clock::time_point::max()).ns() == never);
    CHECK(deadline::in(-1ns).ns() == now && deadline::in(std::chrono::hours::max()).ns() == never);
    CHECK(deadline::in(1ns).ns() > now && deadline::in(1ns).ns() < never);
}

static_assert(std::is_nothrow_copy_constructible_v<retrial::error>, "a throw must not throw");

static void standard_locks(retrial::instance &instance) {
    retrial::mutex<count> first(instance, "first", "test"), second(instance, "second", "test");
    retrial::session session(instance), other(instance), third(instance);
    std::thread counts[2];
    for (auto &thread : counts) {
        thread = std::thread([&, reversed = &thread == counts] {
            retrial::session own(instance, "counts");
            retrial::lockable a(own, reversed ? second : first), b(own, reversed ? first : second);
            for (int i = 0; i < 20000; i++) {
                std::scoped_lock both(a, b);
                first.data()->value++;
                second.data()->value--;
            }
        });
    }
    for (auto &thread : counts) {
        thread.join();
    }
    CHECK(first.data()->value == 40000 && second.data()->value == -40000);
    retrial::lockable lock(session, first), others(other, first), writes(third, first);
    {
        std::unique_lock<retrial::lockable> held(lock);
        CHECK(!std::unique_lock<retrial::lockable>(others, std::try_to_lock).owns_lock());
        CHECK(!std::unique_lock<retrial::lockable>(others, 1ms).owns_lock());
        CHECK(!std::unique_lock<retrial::lockable>(others, std::chrono::system_clock::now() + 1ms).owns_lock());
        CHECK(!std::shared_lock<retrial::lockable>(others, 1ms).owns_lock());
    }
    {
        std::shared_lock<retrial::lockable> reads(lock), reads_too(others);
        CHECK(!writes.try_lock() && !writes.try_lock_until(std::chrono::steady_clock::now() + 1ms));
    }
    CHECK(first.raw()->word == 0);
}

static void killed(retrial::instance &instance) {
    retrial::mutex<count> mutex(instance, "killed", "test");
    pid_t child = fork();
    if (child == 0) {
        retrial::session own(instance, "victim");
        auto held = mutex.x(own);
        held->value = -1;
        std::raise(SIGKILL);
    }
    int status, code;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    retrial::session session(instance);
    for (int thrown = 0; thrown < 2;) { // told again each time
        try {
            retrial::lockable lock(session, mutex);
            thrown == 0 ? lock.lock() : void(mutex.s(session));
            CHECK(false);
        } catch (const retrial::error &error) {
            CHECK(error.code() == RETRIAL_OWNER_DIED && std::string(error.what()).find("died") != std::string::npos);
            CHECK(mutex.raw()->word << 8 == 0);
            thrown++;
        }
    }
    auto held = mutex.x(session, code);
    CHECK(code == RETRIAL_OWNER_DIED && bool(held) && held->value == -1);
    held->value = 0;
    held.consistent();
    held.release();
    CHECK(mutex.x(session)->value == 0);
}

static void own(retrial::instance &instance) {
    static struct {
        retrial::own_mutex mutex;
        long value;
    } mine;
    retrial::session session(instance);
    auto held = mine.mutex.x(session);
    mine.value++;
    int code;
    try {
        session.close();
        CHECK(false);
    } catch (const retrial::error &error) {
        CHECK(error.code() == RETRIAL_BUSY && bool(session));
    }
    held.release();
    mine.mutex.destroy(instance, code);
    CHECK(code == RETRIAL_OK);
    session.close();
    CHECK(!session);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    auto instance = retrial::instance::open(argv[1]);
    guards(instance);
    without_a_mutex(instance);
    deadlines();
    standard_locks(instance);
    killed(instance);
    own(instance);
    instance.close();
    CHECK(retrial_instance_remove(argv[1]) == RETRIAL_OK);
}
