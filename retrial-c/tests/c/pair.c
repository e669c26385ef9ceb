/* A get of X and its release, for a look at what it is compiled to; ../cpp/pair.cpp is the same by a guard. */
#include <retrial.h>

int pair(retrial_session *session, retrial_mutex *mutex, long *data, retrial_location *at);

int pair(retrial_session *session, retrial_mutex *mutex, long *data, retrial_location *at) {
    int code = retrial_mutex_get(session, mutex, RETRIAL_X, at);
    if (code == RETRIAL_OK || code == RETRIAL_OWNER_DIED) {
        ++*data;
        retrial_mutex_release(session, mutex);
    }
    return code;
}
