// ../c/pair.c by a guard.
#include <retrial.hpp>

extern "C" int pair(const retrial::session &session, retrial::mutex<long> &mutex, retrial_location *at) {
    int code;
    if (auto held = mutex.x(session, code, {}, at)) {
        ++*held;
    }
    return code;
}
