/* Conditions for retrial.hpp. retrial_cond.h says what each call does; calls come twice, as in retrial.hpp. */
#ifndef RETRIAL_COND_HPP
#define RETRIAL_COND_HPP

#include <retrial.hpp>
#include <retrial_cond.h>

namespace retrial {

/* A named condition, in the instance's memory. Valid while the instance is open. */
class condition {
  public:
    condition(const instance &of, const char *name, int &code) noexcept {
        code = retrial_cond_named(of.handle(), name, &raw_);
    }
    /* One in a struct of your own. */
    explicit condition(retrial_cond &own) noexcept : raw_(&own) {}

    /* Waits by a guard in X or LX. The code is RETRIAL_OK, RETRIAL_TIMED_OUT or RETRIAL_OWNER_DIED: the guard holds the
     * mutex. With any other nothing is changed. */
    template <class T, mode M> void wait(guard<T, M> &by, int &code, deadline until = {}) const noexcept {
        static_assert(M == mode::x || M == mode::lx, "a wait gives X or LX back");
        code = retrial_cond_wait_until(by.session_, raw_, by.mutex_, until.ns());
    }
    void signal(const session &by, int &code) const noexcept { code = retrial_cond_signal(by.handle(), raw_); }
    void broadcast(const session &by, int &code) const noexcept { code = retrial_cond_broadcast(by.handle(), raw_); }
#ifdef RETRIAL_THROWS_
    condition(const instance &of, const char *name) {
        throws_([&](int &code) { code = retrial_cond_named(of.handle(), name, &raw_); });
    }
    /* False at the deadline. With RETRIAL_OWNER_DIED the mutex is released before the error is thrown. */
    template <class T, mode M> bool wait(guard<T, M> &by, deadline until = {}) const {
        int code;
        wait(by, code, until);
        if (code != RETRIAL_OK && code != RETRIAL_TIMED_OUT) {
            const error why(code);
            if (code == RETRIAL_OWNER_DIED) {
                by = {};
            }
            throw why;
        }
        return code == RETRIAL_OK;
    }
    void signal(const session &by) const {
        throws_([&](int &code) { signal(by, code); });
    }
    void broadcast(const session &by) const {
        throws_([&](int &code) { broadcast(by, code); });
    }
#endif
    retrial_cond *raw() const noexcept { return raw_; }

  private:
    retrial_cond *raw_ = nullptr;
};

} // namespace retrial

#endif
