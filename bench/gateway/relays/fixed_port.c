// Loaded with LD_PRELOAD: a socket that may listen on any port gets the one that the environment's PORT names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>

int bind(int fd, const struct sockaddr *address, socklen_t length) {
    int (*real_bind)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    const char *port = getenv("PORT");
    if (port == NULL || address->sa_family != AF_INET || ((const struct sockaddr_in *)address)->sin_port != 0)
        return real_bind(fd, address, length);
    struct sockaddr_in fixed = *(const struct sockaddr_in *)address;
    fixed.sin_port = htons(atoi(port));
    return real_bind(fd, (const struct sockaddr *)&fixed, sizeof fixed);
}
