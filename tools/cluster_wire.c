// wire FOLDER NAME...: makes nodes for tools/cluster (network, host-name, IPC and mount namespaces) and joins them by links of a
// rate and delay each: a switch in user space, for kernels without netem. It is the first process of the nodes' process
// namespace, so where it ends, all that runs on them ends. Its files from NODE_FILES on are the nodes' namespaces, four each, by
// which others enter them: a mount namespace cannot be bound to a file reliably.
//
// A frame leaves its sender at the rate of the sender's link, behind the frames before it (2 MB may wait, the rest is lost), is
// under way for half the delay of each of the two links, and enters its receiver at the rate of that link, behind the frames of
// other senders. What Ethernet adds to a frame counts (24 bytes), so TCP gets 94.1 % of the rate. When a frame is due follows
// from when it was sent, so one that is late delays no other. The kernel hands over several TCP segments at a time (TSO), which
// saves processor time; each counts with its headers.
//
// FOLDER/state is mapped by this program and by tools/cluster_nodes.py, which sets links and reads counts while frames travel.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORTS = 16, RING = 1 << 14, QUEUE = 2000000, HEADER = sizeof(struct virtio_net_hdr) };
enum { NODE_FILES = 100, NAMESPACES = 4 };  // tools/cluster_nodes.py knows them too
enum { ETHERNET = 24, TCP_HEADERS = 66, SMALLEST = 60 };  // bytes
struct link { double bits_a_second, delay, unplugged; uint64_t frames, bytes, lost; double late_sum, late_max; };
struct state { uint64_t ready, real_time; struct link links[PORTS]; };  // tools/cluster_nodes.py knows this order
struct packet { double due, last_bit; int bytes, length, to; unsigned char data[]; };
struct fifo { struct packet *at[RING]; unsigned first, end; double free_at; };
static volatile struct state *state;
static struct fifo out[PORTS], in[PORTS];  // of the sender's link, of the receiver's
static int fds[PORTS], unplugged[PORTS], ports;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static const char *namespaces[NAMESPACES] = {"/proc/self/ns/net", "/proc/self/ns/uts", "/proc/self/ns/ipc", "/proc/self/ns/mnt"};

static void keep_namespaces(int first) {
  for (int i = 0; i < NAMESPACES; i++) {
    int file = open(namespaces[i], O_RDONLY | O_CLOEXEC);
    if (file < 0 || dup3(file, first + i, O_CLOEXEC) < 0) fail(namespaces[i]);
    close(file);
  }
}

static void write_file(const char *path, const char *text) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0 || write(file, text, strlen(text)) < 0) fail(path);
  close(file);
}

static int make_node(const char *name, int first_file) {  // returns the wire's end of its eth0
  struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP}, request = {.ifr_name = "eth0"};
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS)) fail("unshare");
  if (sethostname(name, strlen(name))) fail("sethostname");
  // Memory is shared within a node only.
  if (mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")) fail("/dev/shm");
  int inet = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (inet < 0 || ioctl(inet, SIOCSIFFLAGS, &loopback)) fail("lo");
  close(inet);
  if (!access("/proc/sys/net/ipv6", F_OK)) {  // its own messages would be counted
    write_file("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
  }
  if (tap < 0 || ioctl(tap, TUNSETIFF, &request) || ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)) fail("/dev/net/tun");
  keep_namespaces(first_file);
  return tap;
}

static int length_on_wire(const unsigned char *frame, int bytes) {
  const struct virtio_net_hdr *header = (const void *)frame;
  bytes -= HEADER;
  if (header->gso_type == VIRTIO_NET_HDR_GSO_NONE || !header->gso_size || bytes <= TCP_HEADERS)
    return (bytes < SMALLEST ? SMALLEST : bytes) + ETHERNET;
  int segments = (bytes - TCP_HEADERS + header->gso_size - 1) / header->gso_size;
  return bytes + (segments - 1) * TCP_HEADERS + segments * ETHERNET;
}

static double seconds(int port, int length) {
  double rate = state->links[port].bits_a_second;
  return rate > 0 ? 8 * length / rate : 0;
}

static int has_room(struct fifo *fifo, int port, double time) {
  double rate = state->links[port].bits_a_second;
  return fifo->end - fifo->first < RING && fifo->free_at - time <= (rate > 0 ? 8.0 * QUEUE / rate : 1);
}

static void append(struct fifo *fifo, struct packet *packet, double due) {
  packet->due = due;
  fifo->at[fifo->end++ % RING] = packet;
}

static struct packet *next_due(struct fifo *fifo, double time) {
  if (fifo->first == fifo->end || fifo->at[fifo->first % RING]->due > time) return NULL;
  return fifo->at[fifo->first++ % RING];
}

static void receive(int port, double time) {
  static unsigned char frame[HEADER + 65536 + 64];
  volatile struct link *link = &state->links[port];
  struct fifo *queue = &out[port];
  int bytes;
  for (int some = 0; some < 64 && (bytes = read(fds[port], frame, sizeof frame)) > HEADER; some++) {
    int length = length_on_wire(frame, bytes), first = 0, last = ports - 1;
    if (!(frame[HEADER] & 1)) first = last = frame[HEADER + 5] - 1;  // not a broadcast
    if (queue->free_at < time) queue->free_at = time;
    if (unplugged[port] || last >= ports || first < 0 || !has_room(queue, port, time)) {
      link->lost++;
      continue;
    }
    queue->free_at += seconds(port, length);
    link->frames++;
    link->bytes += length;
    for (int to = first; to <= last; to++) {
      struct packet *packet;
      if (to == port || queue->end - queue->first == RING || !(packet = malloc(sizeof *packet + bytes))) continue;
      packet->bytes = bytes, packet->length = length, packet->to = to;
      memcpy(packet->data, frame, bytes);
      append(queue, packet, queue->free_at + link->delay / 2);
    }
  }
}

static void move(double time) {
  struct packet *packet;
  for (int port = 0; port < ports; port++)
    while ((packet = next_due(&out[port], time))) {
      struct fifo *queue = &in[packet->to];
      // Bits go on as they come, unless another sender's are before them or the receiver's link is the slower one.
      double first_bit = packet->due - seconds(port, packet->length);
      double free_at = (queue->free_at > first_bit ? queue->free_at : first_bit) + seconds(packet->to, packet->length);
      if (unplugged[packet->to] || !has_room(queue, packet->to, time)) {
        state->links[packet->to].lost++;
        free(packet);
        continue;
      }
      queue->free_at = free_at > packet->due ? free_at : packet->due;
      append(queue, packet, queue->free_at + state->links[packet->to].delay / 2);
    }
  for (int port = 0; port < ports; port++)
    while ((packet = next_due(&in[port], time))) {
      volatile struct link *link = &state->links[port];
      double late = time - packet->due;
      link->late_sum += late;
      if (late > link->late_max) link->late_max = late;
      if (unplugged[port] || write(fds[port], packet->data, packet->bytes) < 0) link->lost++;
      free(packet);
    }
}

static double next_time(void) {
  double next = -1;
  for (int port = 0; port < ports; port++)
    for (int side = 0; side < 2; side++) {
      struct fifo *fifo = side ? &in[port] : &out[port];
      if (fifo->first == fifo->end) continue;
      double due = fifo->at[fifo->first % RING]->due;
      if (next < 0 || due < next) next = due;
    }
  return next;
}

static void plug(void) {  // a node sees that its cable is pulled: NO-CARRIER
  for (int port = 0; port < ports; port++) {
    int off = state->links[port].unplugged != 0, on = !off;
    if (off == unplugged[port]) continue;
    unplugged[port] = off;
    if (ioctl(fds[port], TUNSETCARRIER, &on)) perror("TUNSETCARRIER");
  }
}

int main(int count, char **values) {
  if (count < 3 || count > 2 + PORTS) return fprintf(stderr, "usage: wire FOLDER NAME...\n"), 2;
  if (chdir(values[1])) fail(values[1]);
  int file = open("state", O_RDWR | O_CLOEXEC);
  if (file < 0) fail("state");
  state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (state == MAP_FAILED) fail("state");
  if (!access("/etc/hosts", F_OK) && mount("hosts", "/etc/hosts", NULL, MS_BIND, NULL)) fail("/etc/hosts");
  int home = NODE_FILES + NAMESPACES * PORTS;
  keep_namespaces(home);
  for (ports = 0; 2 + ports < count; ports++) {
    fds[ports] = make_node(values[2 + ports], NODE_FILES + NAMESPACES * ports);
    for (int i = 0; i < NAMESPACES; i++)  // it is a process of no node
      if (setns(home + i, 0)) fail("setns");
  }
  signal(SIGCHLD, SIG_IGN);  // the orphans of the nodes are its children
  prctl(PR_SET_TIMERSLACK, 1);
  // Frames are late on a busy machine otherwise.
  struct sched_param priority = {.sched_priority = 1};
  state->real_time = !sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority);
  state->ready = 1;
  for (;;) {
    struct pollfd polls[PORTS];
    for (int port = 0; port < ports; port++) polls[port] = (struct pollfd){.fd = fds[port], .events = POLLIN};
    double next = next_time(), wait = next < 0 ? 0.05 : next - now();
    wait = wait < 0 ? 0 : wait > 0.05 ? 0.05 : wait;  // what tools/cluster.py sets is looked at as often
    struct timespec timeout = {0, (long)(wait * 1e9)};
    plug();
    if (ppoll(polls, ports, &timeout, NULL) > 0)
      for (int port = 0; port < ports; port++)
        if (polls[port].revents) receive(port, now());
    move(now());
  }
}
