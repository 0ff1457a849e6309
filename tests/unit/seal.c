/* SPDX-License-Identifier: Apache-2.0 */
/* Tags, keys that come from others, and key files. */
#include "cluster/roster.h"
#include "cluster/seals.h"
#include "lib/explain.h"
#include "tests/check.h"
#include "wire/key_file.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPACE 77u
#define MACHINE 3u
#define LIFE 40u

/* ---- SipHash-2-4 ---- */

static uint64_t siphash(uint64_t k0, uint64_t k1, const uint8_t *data, uint64_t len)
{
    struct sip s;
    uint64_t at = 0, word = 0;
    sip_begin(&s, k0, k1);
    for (; at + 8 <= len; at += 8) {
        memcpy(&word, data + at, 8);
        sip_word(&s, word);
    }
    word = 0;
    memcpy(&word, data + at, len - at);
    return sip_end(&s, word, len);
}

/* The authors' vectors: the key is 00 01 .. 0f, the input 00 01 02 .. of that length. */
static void has_the_authors_values(void)
{
    static const struct {
        uint64_t len, hash;
    } vectors[] = {{0, UINT64_C(0x726fdb47dd0e0e31)}, {1, UINT64_C(0x74f839c593dc67fd)},  {7, UINT64_C(0xab0200f58b01d137)},
                   {8, UINT64_C(0x93f5f5799a932462)}, {15, UINT64_C(0xa129ca6149be45e5)}, {16, UINT64_C(0x3f2acc7f57c29bdb)},
                   {63, UINT64_C(0x958a324ceb064572)}};
    uint8_t input[64];
    for (unsigned i = 0; i < sizeof input; i++)
        input[i] = (uint8_t)i;
    for (unsigned i = 0; i < countof(vectors); i++)
        CHECK_EQ(siphash(UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908), input, vectors[i].len), vectors[i].hash);
}

/* ---- tags ---- */

static const struct seal_ring ring = {.count = 2, .key = {{{1, 2}}, {{3, 4}}}};

static struct packet {
    _Alignas(8) uint8_t bytes[PACKET_MAX];
} packet, before;

static struct packet_head *fill(uint32_t len, uint16_t machine)
{
    struct packet_head *h = (struct packet_head *)(void *)packet.bytes;
    memset(&packet, 0, sizeof packet);
    for (uint32_t i = sizeof *h; i < len; i++)
        packet.bytes[i] = (uint8_t)(i * 7);
    *h = (struct packet_head){
        .version = PACKET_VERSION, .family = PACKET_SERVER, .type = 1, .space = SPACE, .epoch = LIFE, .from = {machine, 9}};
    return h;
}

/* Every bit of a tagged packet counts, the tag's and the features' included, at any length; and a shorter or longer one is another.
 */
static void every_bit_counts(void)
{
    const struct seal_key key = {{5, 6}}, other = {{5, 7}};
    static const uint32_t lens[] = {48, 49, 55, 56, 72, 152, PACKET_MAX};
    for (unsigned n = 0; n < countof(lens); n++) {
        uint32_t len = lens[n];
        fill(len, MACHINE);
        memcpy(&before, &packet, sizeof before);
        seal_put(&key, packet.bytes, len);
        for (uint32_t bit = 0; bit < 8 * len; bit++) {
            packet.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            CHECK(!seal_open(&key, packet.bytes, len));
            packet.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        CHECK(!seal_open(&other, packet.bytes, len));
        CHECK(!seal_open(&key, packet.bytes, len - 1));
        CHECK(len == PACKET_MAX || !seal_open(&key, packet.bytes, len + 1));
        CHECK(seal_open(&key, packet.bytes, len));
        CHECK(!memcmp(&packet, &before, sizeof before));
        CHECK(!seal_open(&key, packet.bytes, len)); /* it is not tagged any more */
    }
}

/* The head that is sent apart from its packet is that of the packet tagged in place. */
static void head_alone_is_the_same(void)
{
    const struct seal_key key = {{5, 6}};
    struct packet_head head;
    fill(101, MACHINE);
    seal_head(&key, packet.bytes, 101, &head);
    seal_put(&key, packet.bytes, 101);
    CHECK(!memcmp(&head, packet.bytes, sizeof head));
}

/* ---- keys ---- */

static bool same(struct seal_key a, struct seal_key b)
{
    return !memcmp(&a, &b, sizeof a);
}

static void keys_differ(void)
{
    struct seal_key k[] = {ring.key[0],
                           seal_member_key(&ring.key[0], 0),
                           seal_member_key(&ring.key[0], 1),
                           seal_member_key(&ring.key[1], 0),
                           seal_host_key(&ring.key[0], SPACE, MACHINE, LIFE),
                           seal_host_key(&ring.key[0], SPACE, MACHINE, LIFE + 1),
                           seal_host_key(&ring.key[0], SPACE, MACHINE + 1, LIFE),
                           seal_host_key(&ring.key[0], SPACE + 1, MACHINE, LIFE),
                           seal_host_key(&ring.key[1], SPACE, MACHINE, LIFE)};
    for (unsigned i = 0; i < countof(k); i++)
        for (unsigned j = 0; j < i; j++)
            CHECK(!same(k[i], k[j]));
    struct seal_key wrapped = seal_wrap(&k[4], &k[2], 99, LIFE);
    CHECK(!same(wrapped, k[4]));
    CHECK(same(seal_wrap(&wrapped, &k[2], 99, LIFE), k[4]));
    CHECK(!same(seal_wrap(&wrapped, &k[1], 99, LIFE), k[4])); /* another file does not unwrap it */
    CHECK(!same(seal_wrap(&wrapped, &k[2], 98, LIFE), k[4]));
}

/* ---- a lock server's or switch's ---- */

static struct roster *roster_of_two(void)
{
    const struct rack_config config = {.machines = 8, .space = SPACE};
    struct coord_hosts told = {.count = 2};
    struct roster *r = roster_make(&config, &ring, false);
    CHECK(r);
    told.host[0] = (struct coord_host){.machine = MACHINE, .life = LIFE};
    told.host[1] = (struct coord_host){.machine = MACHINE + 1, .life = LIFE + 1};
    roster_take(r, &told);
    return r;
}

static bool opens(struct roster *r, struct seal_key key, uint16_t machine, uint16_t port, uint8_t family, uint8_t type)
{
    struct seal_key used;
    struct packet_head *h = fill(sizeof(struct coord_packet), machine);
    h->from.port = port;
    h->family = family;
    h->type = type;
    seal_put(&key, h, sizeof(struct coord_packet));
    bool open = roster_opens(r, h, sizeof(struct coord_packet), &used);
    CHECK(!open || same(used, key)); /* the answer has the key of the question */
    return open;
}

static void no_host_speaks_for_another(void)
{
    struct roster *r = roster_of_two();
    for (unsigned i = 0; i < ring.count; i++) {
        struct seal_key mine = seal_host_key(&ring.key[i], SPACE, MACHINE, LIFE), file = seal_member_key(&ring.key[i], 6),
                        cluster = seal_member_key(&ring.key[i], 0);
        CHECK(opens(r, mine, MACHINE, 9, PACKET_SERVER, 1));
        CHECK(same(*roster_key(r, MACHINE), mine)); /* the latest with which the host tagged */
        CHECK(!opens(r, mine, MACHINE + 1, 9, PACKET_SERVER, 1));
        CHECK(!opens(r, mine, MACHINE + 2, 9, PACKET_SERVER, 1));
        CHECK(!opens(r, mine, MACHINE_SWITCH, 9, PACKET_SERVER, 1));
        CHECK(!opens(r, mine, MACHINE_NONE, 0, PACKET_COORDINATOR, COORD_HOSTS));
        CHECK(
            !opens(r, seal_host_key(&ring.key[i], SPACE, MACHINE, LIFE - 1), MACHINE, 9, PACKET_SERVER, 1)); /* of a former life */
        CHECK(!opens(r, file, MACHINE, 6, PACKET_SERVER, 1));
        CHECK(!opens(r, file, MACHINE_OPERATOR, 6, PACKET_NETLOCK, 1));
        CHECK(!opens(r, file, MACHINE_NONE, 6, PACKET_COORDINATOR, COORD_HOSTS)); /* it only asks: */
        CHECK(opens(r, file, MACHINE_NONE, 6, PACKET_COORDINATOR, COORD_WHICH));
        CHECK(opens(r, cluster, MACHINE_NONE, 0, PACKET_COORDINATOR, COORD_HOSTS));
        CHECK(opens(r, cluster, MACHINE_OPERATOR, 9, PACKET_NETLOCK, 1));
        CHECK(!opens(r, cluster, MACHINE, 9, PACKET_SERVER, 1));
    }
    free(r);
}

/* ---- a coordinator's ---- */

static bool reaches(struct seal_key key, uint16_t machine, uint16_t port, uint32_t role, struct seal_key *used)
{
    struct coord_packet *p = (struct coord_packet *)(void *)packet.bytes;
    memset(&packet, 0, sizeof packet);
    coord_make(p, COORD_BEAT, "space", NULL, 5);
    p->head.space = SPACE;
    p->head.from = (struct place){machine, port};
    p->head.epoch = LIFE;
    p->role = role;
    seal_put(&key, p, sizeof *p);
    return seals_open(&ring, p, sizeof *p, used);
}

static void coordinator_checks_by_the_packet_alone(void)
{
    struct seal_key used, mine = seal_host_key(&ring.key[1], SPACE, MACHINE, LIFE), file = seal_member_key(&ring.key[0], 6),
                          cluster = seal_member_key(&ring.key[0], 0);
    CHECK(reaches(mine, MACHINE, 0, 0, &used) && same(used, mine));
    CHECK(!reaches(mine, MACHINE + 1, 0, 0, &used) && !seal_known(&used));
    CHECK(!reaches(mine, MACHINE, 0, COORD_SERVER, &used));
    CHECK(reaches(file, MACHINE_NONE, 6, COORD_HOST, &used) && same(used, file));
    CHECK(!reaches(file, MACHINE_NONE, 5, COORD_HOST, &used));
    CHECK(!reaches(file, MACHINE_NONE, 0, COORD_HOST, &used));
    CHECK(reaches(cluster, MACHINE_SWITCH, 1, COORD_SWITCH, &used));
    CHECK(!reaches(file, MACHINE_SWITCH, 6, COORD_SWITCH, &used));
}

/* The host gets its key, and a reader of the packets does not. */
static void welcome_hands_out_the_key(void)
{
    struct coord_packet ask, answer;
    struct seal_key file = seal_member_key(&ring.key[1], 6), given;
    coord_make(&ask, COORD_JOIN, "space", NULL, 5);
    ask.head.from.port = 6;
    coord_make(&answer, COORD_WELCOME, "space", NULL, 5);
    answer.role = COORD_HOST;
    answer.head.space = SPACE;
    answer.head.to.machine = MACHINE;
    answer.head.generation = LIFE;
    seals_hand_out(&ring, &file, &ask, &answer);
    memcpy(&given, answer.at.ip, sizeof given);
    CHECK(same(seal_wrap(&given, &file, 5, LIFE), seal_host_key(&ring.key[1], SPACE, MACHINE, LIFE)));
    struct coord_packet server = answer;
    server.role = COORD_SERVER;
    memset(&server.at, 0, sizeof server.at);
    seals_hand_out(&ring, &file, &ask, &server);
    CHECK(!net_addr_known(server.at));
}

/* ---- files ---- */

static char path[64];

static int read_back(const char *text, mode_t mode, struct seal_ring *out)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f) && !chmod(path, mode));
    return key_file_read(path, out);
}

#define HEX_A "0123456789abcdef0123456789abcdef"
#define HEX_B "fedcba9876543210fedcba9876543210"

static void files_are_checked(void)
{
    static const char *const wrong[] = {"",
                                        "# nothing\n",
                                        "cluster\n",
                                        "cluster " HEX_A "0\n",
                                        "cluster 0123\n",
                                        "cluster 00000000000000000000000000000000\n",
                                        "cluster 0123456789ABCDEF0123456789abcdef\n",
                                        "cluster " HEX_A " more\n",
                                        "host " HEX_A "\n",
                                        "host 0 " HEX_A "\n",
                                        "host 65536 " HEX_A "\n",
                                        "host 1x " HEX_A "\n",
                                        "admin " HEX_A "\n",
                                        "admin " HEX_A "\nhost 1 " HEX_B "\n",
                                        "host 1 " HEX_A "\nadmin " HEX_B "\n",
                                        "cluster " HEX_A "\nadmin 0123\n",
                                        "cluster " HEX_A "\nadmin " HEX_A "\nadmin " HEX_B "\nadmin " HEX_A "\n",
                                        "cluster " HEX_A "\nhost 1 " HEX_B "\n",
                                        "host 2 " HEX_A "\nhost 1 " HEX_B "\n",
                                        "cluster " HEX_A "\ncluster " HEX_B "\ncluster " HEX_A "\n"};
    struct seal_ring r, again;
    for (unsigned i = 0; i < countof(wrong); i++)
        CHECK_EQ(read_back(wrong[i], 0600, &r), -EINVAL);
    CHECK_EQ(read_back("cluster " HEX_A " # the first\n\n  cluster\t" HEX_B "\n", 0400, &r), 0);
    CHECK(r.count == 2 && !r.number && r.key[1].k[1] == UINT64_C(0xfedcba9876543210));
    CHECK_EQ(read_back("admin " HEX_A "\ncluster " HEX_A "\nadmin " HEX_B "\n", 0600, &r), 0);
    CHECK(r.count == 1 && !r.number && r.admins == 2 && r.admin[1].k[1] == UINT64_C(0xfedcba9876543210));
    unlink(path);
    CHECK_EQ(key_file_write(path, &r), 0);
    CHECK_EQ(key_file_read(path, &again), 0);
    CHECK(!memcmp(&r, &again, sizeof r));
    unlink(path);
    CHECK_EQ(read_back("host 65535 " HEX_A, 0600, &r), 0);
    CHECK(r.count == 1 && r.number == 65535);
    static const mode_t modes[] = {0640, 0604, 0620, 0660, 0644, 0610};
    for (unsigned i = 0; i < countof(modes); i++)
        CHECK_EQ(read_back("cluster " HEX_A "\n", modes[i], &r), -EACCES);
    CHECK_EQ(key_file_write(path, &r), -EEXIST);
    unlink(path);
    CHECK_EQ(key_file_read(path, &again), -ENOENT);
    CHECK_EQ(key_file_write(path, &r), 0);
    struct stat st;
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600);
    CHECK_EQ(key_file_read(path, &again), 0);
    CHECK(!memcmp(&r, &again, sizeof r));
    unlink(path);
    CHECK_EQ(key_file_read("/", &r), -EINVAL);
}

/* Of an operator's command: every bit of the packet counts, and the proof of either admin key. */
static void commands_are_proved(void)
{
    const struct seal_ring cluster = {.count = 1, .key = {{{1, 2}}}};
    const struct seal_ring admin = {.count = 1, .key = {{{1, 2}}}, .admins = 2, .admin = {{{3, 4}}, {{5, 6}}}},
                           second = {.count = 1, .key = {{{1, 2}}}, .admins = 1, .admin = {{{5, 6}}}},
                           other = {.count = 1, .key = {{{1, 2}}}, .admins = 1, .admin = {{{7, 8}}}};
    const uint32_t at = offsetof(struct coord_packet, term);
    struct coord_packet p;
    coord_make(&p, COORD_BREAK, "space", NULL, 17);
    seal_prove(&cluster, &p, sizeof p, &p.term);
    CHECK(!p.term && seal_proved(&cluster, &p, sizeof p, at) && !seal_proved(&admin, &p, sizeof p, at));
    seal_prove(&other, &p, sizeof p, &p.term);
    CHECK(seal_proved(&cluster, &p, sizeof p, at) && !seal_proved(&admin, &p, sizeof p, at));
    seal_prove(&second, &p, sizeof p, &p.term);
    CHECK(seal_proved(&admin, &p, sizeof p, at));
    seal_prove(&admin, &p, sizeof p, &p.term);
    CHECK(seal_proved(&admin, &p, sizeof p, at) && !seal_proved(&second, &p, sizeof p, at));
    for (unsigned bit = 0; bit < sizeof p * 8; bit++) {
        uint8_t *byte = (uint8_t *)&p + bit / 8;
        bool tag = bit / 64 == offsetof(struct packet_head, tag) / sizeof(uint64_t);
        *byte ^= (uint8_t)(1u << bit % 8);
        CHECK_EQ(seal_proved(&admin, &p, sizeof p, at), tag);
        *byte ^= (uint8_t)(1u << bit % 8);
    }
    CHECK(seal_ticket(1, 2, 3, 4) == seal_ticket(1, 2, 3, 4));
    CHECK(seal_ticket(1, 2, 3, 4) != seal_ticket(2, 2, 3, 4) && seal_ticket(1, 2, 3, 4) != seal_ticket(1, 3, 3, 4));
    CHECK(seal_ticket(1, 2, 3, 4) != seal_ticket(1, 2, 4, 4) && seal_ticket(1, 2, 3, 4) != seal_ticket(1, 2, 3, 5));
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/pawl-seal-%d.key", (int)getpid());
    has_the_authors_values();
    every_bit_counts();
    head_alone_is_the_same();
    keys_differ();
    no_host_speaks_for_another();
    coordinator_checks_by_the_packet_alone();
    welcome_hands_out_the_key();
    files_are_checked();
    commands_are_proved();
    return 0;
}
