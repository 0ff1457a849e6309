/* SPDX-License-Identifier: Apache-2.0 */
#include "node/http.h"
#include "lib/explain.h"
#include "node/figures.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS 256u       /* scrapers, pages of operators, and slow clients beside them */
#define BACKLOG 128            /* of connections that wait */
#define IDLE_S 5u              /* after which a connection that says nothing is closed */
#define CONNECTION_BYTES 16384 /* longer heads are refused: "431 Request Header Fields Too Large" */

struct http {
    struct MHD_Daemon *daemon;
};

#define PLAIN "text/plain; charset=utf-8"
#define EXPOSITION "text/plain; version=0.0.4; charset=utf-8"

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type, char *body, size_t len,
                             enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(len, body, mode);
    if (!r) {
        if (mode == MHD_RESPMEM_MUST_FREE)
            free(body);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result queued = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *sentence)
{
    return reply(c, status, PLAIN, (char *)(uintptr_t)sentence, strlen(sentence), MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result write_page(struct MHD_Connection *c, const char *type, void (*write_body)(FILE *out))
{
    char *body = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&body, &len);
    if (!out)
        return say(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    write_body(out);
    fclose(out);
    return reply(c, MHD_HTTP_OK, type, body, len, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *path, const char *method, const char *version,
                                  const char *upload, size_t *upload_len, void **state)
{
    static int seen;
    (void)ctx;
    (void)version;
    (void)upload;
    if (!*state) { /* the head alone; the answer comes with the next call */
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_len) {
        *upload_len = 0; /* bodies are of no interest */
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "pages can be read only\n");
    if (!strcmp(path, "/metrics"))
        return write_page(c, EXPOSITION, figures_write);
    if (!strcmp(path, "/healthz"))
        return say(c, MHD_HTTP_OK, "ok\n");
    if (!strcmp(path, "/readyz"))
        return figures_ready() ? say(c, MHD_HTTP_OK, "ready\n") : say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready\n");
    return say(c, MHD_HTTP_NOT_FOUND, "there are /metrics, /healthz and /readyz\n");
}

static int listen_at(struct net_addr *at)
{
    union net_name name = {0};
    const int on = 1;
    socklen_t len = net_addr_name(at, &name);
    char text[NET_ADDR_TEXT];
    net_addr_print(*at, text);
    int fd = socket(name.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd >= 0 && !bind(fd, &name.any, len) && !listen(fd, BACKLOG) && !getsockname(fd, &name.any, &len)) {
        at->port = ntohs(name.any.sa_family == AF_INET ? name.v4.sin_port : name.v6.sin6_port);
        return fd;
    }
    int rc = explain(-errno, "cannot listen for HTTP at %s: %s (--http; 'ss -ltnp' shows the process that has a port)", text,
                     strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

static void ignore_complaint(void *ctx, const char *format, va_list args)
{
    (void)ctx;
    (void)format;
    (void)args; /* of clients that break off, or send nonsense */
}

int http_open(struct net_addr *at, struct http **out)
{
    struct http *h = calloc(1, sizeof *h);
    int fd = h ? listen_at(at) : explain(-ENOMEM, "out of memory");
    if (fd < 0) {
        free(h);
        return fd;
    }
    h->daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL, on_request, NULL, MHD_OPTION_EXTERNAL_LOGGER,
                                 ignore_complaint, NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                 (size_t)CONNECTION_BYTES, MHD_OPTION_END);
    if (!h->daemon) {
        close(fd);
        free(h);
        return explain(-EIO, "cannot start the thread for HTTP");
    }
    *out = h;
    return 0;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    MHD_stop_daemon(h->daemon);
    free(h);
}
