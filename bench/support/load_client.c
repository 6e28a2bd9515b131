/* Sends one request to a gateway repeatedly on persistent connections and measures the response times.
 *
 *     load_client PORT CONNECTIONS SECONDS REQUESTS STAGGER END < REQUEST
 *
 * Opens all connections first, then keeps one request under way on each for SECONDS, or until REQUESTS are done
 * (0: no such bound). STAGGER microseconds pass between the starts of the connections. REQUEST is all of an HTTP
 * request; each run of ten '@' in it becomes a number that no other request has. An answer counts when its status is
 * 200, its body is whole, and END (unless empty) stands near the body's end. Prints one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 60, TAIL = 128, HEAD = 16384, MAX_MARKS = 8, BATCH = 256 };
enum state { HEADERS, SIZED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, DONE };

struct connection {
    int fd;
    enum state state;
    bool busy, chunked;
    size_t sent;
    int64_t begun, first, starts_at;
    char head[HEAD]; /* Headers, then the line with a chunk's size. */
    size_t head_length;
    size_t left;
    char tail[TAIL]; /* The body's last bytes. */
    size_t tail_length;
    int line_start; /* How much of "data:" has matched at the start of this line; -1: it is another line. */
    char *request;
};

static int epoll;
static char *request;
static size_t request_length, marks[MAX_MARKS];
static int mark_count;
static unsigned long number, begun, events, bytes, wanted;
static const char *end_mark;
static int64_t *firsts, *totals, stop_at;
static size_t samples, samples_size;

static int64_t now(void) { /* In nanoseconds. */
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

__attribute__((noreturn)) static void fail(const char *what, const struct connection *c) {
    fprintf(stderr, "client: %s\n", what);
    if (c) fprintf(stderr, "%.*s\n%.*s\n", (int)c->head_length, c->head, (int)c->tail_length, c->tail);
    exit(1);
}

static void read_request(void) {
    size_t size = 1 << 20, got;
    request = malloc(size);
    while ((got = fread(request + request_length, 1, size - request_length, stdin)) > 0) {
        request_length += got;
        if (request_length == size) request = realloc(request, size *= 2);
    }
    for (size_t i = 0; i + 10 <= request_length; i++)
        if (memcmp(request + i, "@@@@@@@@@@", 10) == 0) {
            if (mark_count == MAX_MARKS) fail("too many marks in the request", NULL);
            marks[mark_count++] = i;
            i += 9;
        }
}

static bool may_begin(int64_t time) { return wanted ? begun < wanted : time < stop_at; }

static void send_rest(struct connection *c) {
    while (c->sent < request_length) {
        ssize_t sent = send(c->fd, c->request + c->sent, request_length - c->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) fail("the connection broke while sending", c);
        if (sent > 0) c->sent += (size_t)sent;
        bool full = sent < 0;
        struct epoll_event event = {.events = EPOLLIN | (full ? EPOLLOUT : 0), .data.ptr = c};
        if (full || c->sent < request_length) epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
        if (full) return;
    }
}

static void begin(struct connection *c, int64_t time) {
    char digits[11];
    snprintf(digits, sizeof digits, "%010lu", number++);
    for (int i = 0; i < mark_count; i++) memcpy(c->request + marks[i], digits, 10);
    begun++;
    c->busy = true;
    c->state = HEADERS;
    c->sent = c->head_length = c->tail_length = 0;
    c->line_start = 0;
    c->first = 0;
    c->begun = time;
    send_rest(c);
}

static void finish(struct connection *c) {
    int64_t time = now();
    if (*end_mark && !memmem(c->tail, c->tail_length, end_mark, strlen(end_mark)))
        fail("an answer ended without its last event", c);
    if (samples == samples_size) {
        samples_size = samples_size ? samples_size * 2 : 65536;
        firsts = realloc(firsts, samples_size * sizeof *firsts);
        totals = realloc(totals, samples_size * sizeof *totals);
    }
    firsts[samples] = c->first - c->begun;
    totals[samples++] = time - c->begun;
    c->busy = false;
    if (may_begin(time)) begin(c, time);
}

static void body(struct connection *c, const char *data, size_t length) {
    if (!c->first && length) c->first = now();
    bytes += length;
    if (*end_mark)
        for (size_t i = 0; i < length; i++) {
            if (data[i] == '\n')
                c->line_start = 0;
            else if (c->line_start >= 0)
                c->line_start = data[i] == "data:"[c->line_start] ? c->line_start + 1 : -1;
            if (c->line_start == 5) {
                events++;
                c->line_start = -1;
            }
        }
    if (length >= TAIL) {
        memcpy(c->tail, data + length - TAIL, TAIL);
        c->tail_length = TAIL;
        return;
    }
    if (c->tail_length + length > TAIL) {
        size_t drop = c->tail_length + length - TAIL;
        memmove(c->tail, c->tail + drop, c->tail_length -= drop);
    }
    memcpy(c->tail + c->tail_length, data, length);
    c->tail_length += length;
}

static void headers(struct connection *c) {
    c->head[c->head_length - 4] = 0;
    const char *sized = strcasestr(c->head, "\r\ncontent-length:");
    c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    if (strncmp(c->head, "HTTP/1.1 200", 12) != 0) {
        recv(c->fd, c->tail, TAIL, 0);
        c->tail_length = TAIL;
        fail("an answer is not 200", c);
    }
    if (!sized && !c->chunked) fail("an answer has no length", c);
    c->left = sized ? strtoul(sized + 17, NULL, 10) : 0;
    c->state = c->chunked ? CHUNK_SIZE : c->left ? SIZED : DONE;
    c->head_length = 0;
}

static void take(struct connection *c, const char *data, size_t length) {
    while (length && c->state != DONE) {
        if (c->state == SIZED || c->state == CHUNK) {
            size_t piece = length < c->left ? length : c->left;
            body(c, data, piece);
            data += piece;
            length -= piece;
            if ((c->left -= piece) == 0) c->state = c->state == SIZED ? DONE : CHUNK_END;
            continue;
        }
        if (c->head_length == HEAD - 1) fail("a line is too long", c);
        char byte = c->head[c->head_length++] = *data++;
        length--;
        if (byte != '\n') continue;
        if (c->state == HEADERS) {
            if (c->head_length >= 4 && memcmp(c->head + c->head_length - 4, "\r\n\r\n", 4) == 0) headers(c);
            continue;
        }
        c->head[c->head_length] = 0;
        size_t line = c->head_length;
        c->head_length = 0;
        if (c->state == CHUNK_SIZE) {
            c->left = strtoul(c->head, NULL, 16);
            c->state = c->left ? CHUNK : TRAILER;
        } else if (c->state == CHUNK_END) {
            if (line != 2) fail("a chunk is longer than it said", c);
            c->state = CHUNK_SIZE;
        } else if (line == 2) {
            c->state = DONE;
        }
    }
    if (c->state == DONE) {
        if (length) fail("something follows an answer", c);
        finish(c);
    }
}

static void receive(struct connection *c) {
    static char data[262144];
    ssize_t got = recv(c->fd, data, sizeof data, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("the connection was closed before the answer's end", c);
    if (!c->busy) fail("an answer to nothing", c);
    take(c, data, (size_t)got);
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, int64_t *times) {
    qsort(times, samples, sizeof *times, ascending);
    printf(", \"%s_p50\": %.9f, \"%s_p99\": %.9f", name, (double)times[samples / 2] / 1e9, name,
           (double)times[samples * 99 / 100] / 1e9);
}

int main(int count, char **words) {
    if (count != 7) fail("usage: load_client PORT CONNECTIONS SECONDS REQUESTS STAGGER END < REQUEST", NULL);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(words[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int connections = atoi(words[2]);
    double seconds = atof(words[3]);
    wanted = strtoul(words[4], NULL, 10);
    int64_t stagger = strtol(words[5], NULL, 10) * 1000;
    end_mark = words[6];
    read_request();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    number = (unsigned long)wall.tv_sec % 10000 * 1000000; /* Runs do not repeat each other's numbers. */
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        struct connection *c = all + i;
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect", NULL);
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        c->request = memcpy(malloc(request_length), request, request_length);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
        int flags = 1;
        if (ioctl(c->fd, FIONBIO, &flags)) fail("cannot set the connection up", NULL);
    }
    usleep(20000); /* Whoever is asked has taken the connections in. */
    int64_t start = now(), moved = start;
    stop_at = start + (int64_t)(seconds * 1e9);
    int waiting = connections;
    for (int i = 0; i < connections; i++) all[i].starts_at = start + stagger * i;
    for (;;) {
        int64_t time = now();
        while (waiting && all[connections - waiting].starts_at <= time) {
            if (may_begin(time)) begin(all + connections - waiting, now());
            waiting--;
        }
        if (samples == begun && (!waiting || !may_begin(time))) break;
        struct timespec pause = {.tv_sec = 1};
        if (waiting) {
            int64_t rest = all[connections - waiting].starts_at - time;
            pause = (struct timespec){.tv_sec = rest / 1000000000, .tv_nsec = rest % 1000000000};
        }
        struct epoll_event ready[BATCH];
        int many = epoll_pwait2(epoll, ready, BATCH, &pause, NULL);
        if (many > 0) moved = now();
        if (now() - moved > (int64_t)PATIENCE * 1000000000) fail("no answer for a minute", NULL);
        for (int i = 0; i < many; i++) {
            struct connection *c = ready[i].data.ptr;
            if (ready[i].events & EPOLLOUT) send_rest(c);
            if (ready[i].events & ~(uint32_t)EPOLLOUT) receive(c);
        }
    }
    /* Until the last answer, so that who answers many at a time is not cheated of those that the end cut off. */
    double took = (double)(now() - start) / 1e9;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    if (!samples) fail("nothing was asked", NULL);
    printf("{\"answers\": %lu, \"seconds\": %.6f, \"rate\": %.3f, \"events\": %lu, \"bytes\": %lu, \"cpu\": %.6f",
           begun, took, (double)begun / took, events, bytes, cpu);
    print_times("first", firsts);
    print_times("total", totals);
    printf("}\n");
    return 0;
}
