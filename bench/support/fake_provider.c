/* A fake provider with little cost: responds in the formats of OpenAI and Anthropic, always with the same text.
 *
 *     fake_provider       listens on a free port of 127.0.0.1 and prints it
 *
 * POST /v1/chat/completions and /v1/messages answer at once, or with 200 events where the body asks for a stream,
 * each in a write of its own. POST /mcp is an MCP server of both eras with the tool `echo`, POST /mcp/N one with N tools.
 * GET /pace/N lets N microseconds pass between events from then on (0: none), and
 * GET /seen returns the number of requests by path. One thread, one epoll.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 200, MAX_CONNECTIONS = 16384, BATCH = 256 };

struct connection {
    int fd;
    char *in; /* What came and is not answered yet. */
    size_t in_length, in_size;
    char out[32768]; /* What could not be sent at once. */
    size_t out_length, out_sent;
    bool streaming, anthropic, waits_for_room;
    int next_event;
    unsigned long number;
    int64_t due;
    int place; /* Among the streams. */
};

static int epoll, timer, streams;
static struct connection *connections[MAX_CONNECTIONS], *stream_list[MAX_CONNECTIONS];
static int64_t pace;
static unsigned long chats, messages, others;
static const char *const WORDS[] = {" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy", " dog,"};

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void forget_stream(struct connection *c) {
    if (!c->streaming) return;
    struct connection *last = stream_list[--streams];
    stream_list[c->place] = last;
    last->place = c->place;
    c->streaming = false;
}

static void hang_up(struct connection *c) {
    forget_stream(c);
    connections[c->fd] = NULL;
    close(c->fd);
    free(c->in);
    free(c);
}

static void watch_for_room(struct connection *c, bool wanted) {
    if (c->waits_for_room == wanted) return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.fd = c->fd};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
    c->waits_for_room = wanted;
}

/* Returns false where the connection is gone. */
static bool flush(struct connection *c) {
    while (c->out_sent < c->out_length) {
        ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_length - c->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            watch_for_room(c, true);
            return true;
        }
        if (sent < 0) {
            hang_up(c);
            return false;
        }
        c->out_sent += (size_t)sent;
    }
    c->out_length = c->out_sent = 0;
    watch_for_room(c, false);
    return true;
}

__attribute__((format(printf, 2, 3))) static void put(struct connection *c, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    c->out_length += (size_t)vsnprintf(c->out + c->out_length, sizeof c->out - c->out_length, format, arguments);
    va_end(arguments);
}

static void answer(struct connection *c, int status, const char *type, const char *body) {
    put(c, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s", status, status == 200 ? "OK" : "No",
        type, strlen(body), body);
}

static void answer_chat(struct connection *c) {
    char body[1024];
    snprintf(body, sizeof body,
             "{\"id\":\"chatcmpl-%010lu\",\"object\":\"chat.completion\",\"created\":1750000000,\"model\":\"bench-model\","
             "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Answer %010lu: the quick brown "
             "fox jumps over the lazy dog, and then it sits down and thinks about what it has done today.\","
             "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":57,"
             "\"completion_tokens\":29,\"total_tokens\":86},\"system_fingerprint\":\"fp_bench\"}",
             c->number, c->number);
    answer(c, 200, "application/json", body);
}

static void answer_message(struct connection *c) {
    char body[1024];
    snprintf(body, sizeof body,
             "{\"id\":\"msg_%010lu\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"bench-model\",\"content\":"
             "[{\"type\":\"text\",\"text\":\"Answer %010lu: the quick brown fox jumps over the lazy dog, and then it sits "
             "down and thinks about what it has done today.\"}],\"stop_reason\":\"end_turn\",\"stop_sequence\":null,"
             "\"usage\":{\"input_tokens\":57,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,"
             "\"output_tokens\":29}}",
             c->number, c->number);
    answer(c, 200, "application/json", body);
}

static void event(struct connection *c, const char *text) {
    put(c, "%zx\r\n%s\r\n", strlen(text), text);
}

static void chat_event(struct connection *c, int number) {
    char text[512], choices[256];
    const char *usage = "null";
    const char *word = WORDS[number % 9];
    if (number == 0)
        snprintf(choices, sizeof choices,
                 "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"%010lu\"},\"finish_reason\":null}]", c->number);
    else if (number < EVENTS - 2)
        snprintf(choices, sizeof choices, "[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":null}]", word);
    else if (number == EVENTS - 2)
        snprintf(choices, sizeof choices, "[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]");
    else {
        snprintf(choices, sizeof choices, "[]");
        usage = "{\"prompt_tokens\":57,\"completion_tokens\":198,\"total_tokens\":255}";
    }
    snprintf(text, sizeof text,
             "data: {\"id\":\"chatcmpl-%010lu\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,"
             "\"model\":\"bench-model\",\"choices\":%s,\"usage\":%s}\n\n",
             c->number, choices, usage);
    event(c, text);
    if (number == EVENTS - 1) event(c, "data: [DONE]\n\n");
}

static void message_event(struct connection *c, int number) {
    char text[512];
    if (number == 0)
        snprintf(text, sizeof text,
                 "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_%010lu\",\"type\":"
                 "\"message\",\"role\":\"assistant\",\"model\":\"bench-model\",\"content\":[],\"stop_reason\":null,"
                 "\"stop_sequence\":null,\"usage\":{\"input_tokens\":57,\"output_tokens\":1}}}\n\n",
                 c->number);
    else if (number == 1)
        snprintf(text, sizeof text,
                 "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":"
                 "{\"type\":\"text\",\"text\":\"\"}}\n\n");
    else if (number < EVENTS - 3)
        snprintf(text, sizeof text,
                 "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
                 "{\"type\":\"text_delta\",\"text\":\"%s\"}}\n\n",
                 WORDS[number % 9]);
    else if (number == EVENTS - 3)
        snprintf(text, sizeof text,
                 "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n");
    else if (number == EVENTS - 2)
        snprintf(text, sizeof text,
                 "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\","
                 "\"stop_sequence\":null},\"usage\":{\"output_tokens\":195}}\n\n");
    else
        snprintf(text, sizeof text, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    event(c, text);
}

/* Answers one MCP message; the id is the last one of the body, as the parameters have none. */
static void answer_mcp(struct connection *c, const char *body, size_t length, int tools) {
    static char text[65536];
    char id[32] = "";
    const char *end = body + length, *found = body, *last = NULL;
    while ((found = memmem(found, (size_t)(end - found), "\"id\":", 5))) last = found += 5;
    for (size_t i = 0; last && last < end && i < sizeof id - 1 && !strchr(",}", *last); last++)
        if (*last != ' ') id[i++] = *last, id[i] = 0;
    bool stateless = memmem(body, length, "io.modelcontextprotocol/protocolVersion", 39) != NULL;
    int used = snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{%s", id[0] ? id : "null",
                        stateless ? "\"resultType\":\"complete\"," : "");
    size_t room = sizeof text - (size_t)used;
    char *rest = text + used;
    if (memmem(body, length, "\"notifications/", 15)) {
        put(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    if (memmem(body, length, "\"tools/call\"", 12))
        snprintf(rest, room, "\"content\":[{\"type\":\"text\",\"text\":\"the quick brown fox jumps over the lazy dog, and "
                             "then it sits down and thinks about what it has done\"}]}}");
    else if (memmem(body, length, "\"tools/list\"", 12)) {
        int put_so_far = snprintf(rest, room, "\"ttlMs\":3600000,\"cacheScope\":\"public\",\"tools\":[");
        for (int i = 0; i < tools; i++) {
            char name[16];
            snprintf(name, sizeof name, i ? "tool_%d" : "echo", i);
            put_so_far += snprintf(rest + put_so_far, room - (size_t)put_so_far,
                                   "%s{\"name\":\"%s\",\"description\":\"Repeats a text; one of the tools that the benchmark "
                                   "lists.\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":"
                                   "\"string\"}},\"required\":[\"text\"]}}",
                                   i ? "," : "", name);
        }
        snprintf(rest + put_so_far, room - (size_t)put_so_far, "]}}");
    } else if (memmem(body, length, "\"initialize\"", 12))
        snprintf(rest, room, "\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":"
                             "\"bench\",\"version\":\"1\"}}}");
    else if (memmem(body, length, "\"server/discover\"", 17))
        snprintf(rest, room, "\"supportedVersions\":[\"2026-07-28\",\"2025-11-25\"],\"capabilities\":{\"tools\":{}},\"ttlMs\":"
                             "3600000,\"cacheScope\":\"public\",\"_meta\":{\"io.modelcontextprotocol/serverInfo\":{\"name\":"
                             "\"bench\",\"version\":\"1\"}}}}");
    else if (memmem(body, length, "\"ping\"", 6))
        snprintf(rest, room, "\"_meta\":{}}}");
    else
        snprintf(text, sizeof text,
                 "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}",
                 id[0] ? id : "null");
    answer(c, strstr(text, "-32601") ? 404 : 200, "application/json", text);
}

static bool take_requests(struct connection *c);

/* Sends what is due of a stream. */
static bool go_on(struct connection *c, int64_t time) {
    while (c->streaming && c->out_length == 0 && c->due <= time) {
        if (c->anthropic)
            message_event(c, c->next_event);
        else
            chat_event(c, c->next_event);
        bool last = ++c->next_event == EVENTS;
        if (last) {
            put(c, "0\r\n\r\n");
            forget_stream(c);
        }
        c->due += pace;
        if (!flush(c)) return false;
        if (last) return take_requests(c);
    }
    return true;
}

static bool begin_stream(struct connection *c) {
    put(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
           "Transfer-Encoding: chunked\r\n\r\n");
    c->streaming = true;
    c->place = streams;
    stream_list[streams++] = c;
    c->next_event = 0;
    c->due = now();
    return flush(c) && go_on(c, c->due);
}

static const char *header(const char *head, const char *name) {
    const char *found = strcasestr(head, name);
    return found ? found + strlen(name) : NULL;
}

static bool asks_for_stream(const char *body, size_t length) {
    return memmem(body, length, "\"stream\":true", 13) || memmem(body, length, "\"stream\": true", 14);
}

/* Answers the requests that are there in full, one after the other. */
static bool take_requests(struct connection *c) {
    while (!c->streaming && c->out_length == 0 && c->in_length > 0) {
        c->in[c->in_length] = 0;
        char *end = strstr(c->in, "\r\n\r\n");
        if (!end) return true;
        *end = 0;
        const char *length = header(c->in, "\r\ncontent-length:");
        bool chunked = header(c->in, "\r\ntransfer-encoding:") != NULL;
        size_t body_length = length ? strtoul(length, NULL, 10) : 0;
        size_t whole = (size_t)(end - c->in) + 4 + body_length;
        if (c->in_length < whole) {
            *end = '\r';
            return true;
        }
        const char *body = end + 4;
        bool begins = false;
        bool chat = strncmp(c->in, "POST /v1/chat/completions", 25) == 0;
        bool message = strncmp(c->in, "POST /v1/messages", 17) == 0;
        if (chunked) {
            answer(c, 411, "text/plain", "this upstream wants a Content-Length\n");
        } else if (chat || message) {
            c->number = chats + messages;
            *(chat ? &chats : &messages) += 1;
            c->anthropic = message;
            begins = asks_for_stream(body, body_length);
            if (!begins) (chat ? answer_chat : answer_message)(c);
        } else if (strncmp(c->in, "POST /mcp", 9) == 0) {
            answer_mcp(c, body, body_length, c->in[9] == '/' ? atoi(c->in + 10) : 1);
        } else if (strncmp(c->in, "GET /pace/", 10) == 0) {
            pace = strtol(c->in + 10, NULL, 10);
            answer(c, 200, "text/plain", "set\n");
        } else if (strncmp(c->in, "GET /seen", 9) == 0) {
            char text[128];
            snprintf(text, sizeof text, "{\"chats\":%lu,\"messages\":%lu,\"others\":%lu}\n", chats, messages, others);
            answer(c, 200, "application/json", text);
        } else {
            others++;
            answer(c, 404, "text/plain", "no such path\n");
        }
        memmove(c->in, c->in + whole, c->in_length - whole);
        c->in_length -= whole;
        if (begins ? !begin_stream(c) : !flush(c)) return false;
    }
    return true;
}

static void receive(struct connection *c) {
    for (;;) {
        if (c->in_size - c->in_length < 65536) c->in = realloc(c->in, c->in_size = c->in_size * 2 + 131072);
        size_t room = c->in_size - c->in_length - 1;
        ssize_t got = recv(c->fd, c->in + c->in_length, room, 0);
        if (got < 0 && errno == EAGAIN) break;
        if (got <= 0) {
            hang_up(c);
            return;
        }
        c->in_length += (size_t)got;
        if ((size_t)got < room) break;
    }
    take_requests(c);
}

static void welcome(int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= MAX_CONNECTIONS) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct connection *c = connections[fd] = calloc(1, sizeof *c);
        c->fd = fd;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

static void wake_for_the_next_event(void) {
    int64_t soonest = INT64_MAX;
    for (int i = 0; i < streams; i++)
        if (stream_list[i]->out_length == 0 && stream_list[i]->due < soonest) soonest = stream_list[i]->due;
    struct itimerspec when = {0};
    if (soonest != INT64_MAX)
        when.it_value = (struct timespec){.tv_sec = soonest / 1000000, .tv_nsec = soonest % 1000000 * 1000 + 1};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) {
        perror("upstream");
        return 1;
    }
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event events[BATCH] = {{.events = EPOLLIN, .data.fd = listener}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, events);
    events[0].data.fd = timer;
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, events);
    for (;;) {
        int ready = epoll_wait(epoll, events, BATCH, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                welcome(listener);
                continue;
            }
            if (fd == timer) {
                uint64_t expired;
                (void)!read(timer, &expired, sizeof expired);
                continue;
            }
            struct connection *c = connections[fd];
            if (c && events[i].events & EPOLLOUT && !(flush(c) && go_on(c, now()) && take_requests(c))) continue;
            if (connections[fd] == c && c && events[i].events & ~(uint32_t)EPOLLOUT) receive(c);
        }
        int64_t time = now();
        for (int i = streams - 1; i >= 0; i--)
            if (i < streams) go_on(stream_list[i], time);
        if (streams || ready == 0) wake_for_the_next_event();
    }
}
