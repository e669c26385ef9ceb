// Without exceptions: codes. With COPIED it must not compile.
#include <retrial.hpp>

#ifdef __cpp_exceptions
#error "compile with -fno-exceptions"
#endif

static_assert(!std::is_copy_constructible_v<retrial::guard<long, retrial::mode::x>>);
static_assert(!std::is_copy_constructible_v<retrial::session> && !std::is_copy_constructible_v<retrial::instance>);

int main() {
    int code;
    auto instance = retrial::instance::anonymous(code);
    retrial::session session(instance, "codes", code);
    retrial::mutex<long> mutex(instance, "value", "test", code);
    auto held = mutex.x(session, code);
    if (code != RETRIAL_OK || !held) {
        return 1;
    }
    ++*held;
#ifdef COPIED
    auto copy = held;
#endif
    retrial::session none(retrial::instance(), "none", code);
    if (code != RETRIAL_INVALID || none) {
        return 2;
    }
    held.release(code);
    return code == RETRIAL_OK && *mutex.data() == 1 ? 0 : 3;
}
