// A library of the operator `test.ops:Attack` (y = 2 x), which tries to leave its sandbox when its kernel is created.
//
// The attribute `attempts` holds one name, and its arguments, in lines. The library answers the parent with an error of
// its own, "attack: NAME=RESULT …", and ends the process with status 7. A result is 0 if the attempt succeeded, else
// `errno`; what was read follows after a colon. Linux on x86-64; system calls are made by number.
#define _GNU_SOURCE 1
#define OPERATOR "Attack"
#define CREATED(info) attack(info)
#define COMPUTED() on_run()
static void attack(const void* info);
static void on_run();
#include "custom_op.cpp"

#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>

using std::string;
using Arguments = std::vector<string>;

static string report = "attack:";
static string name;
static Arguments arguments;

static string errors(long result) { return std::to_string(result < 0 ? errno : 0); }
static void tell(const char* attempt, const string& result) { report += string(" ") + attempt + "=" + result; }
static void tell(const char* attempt, long result) { tell(attempt, errors(result)); }
// writes to every descriptor that may lead to the parent
static void say(const string& message) {
  for (int descriptor = 3; descriptor < 100; ++descriptor)
    for (size_t sent = 0; sent < message.size();) {
      long size = write(descriptor, message.data() + sent, message.size() - sent);
      if (size <= 0) break;
      sent += size;
    }
}
static void finish() {
  say("{\"error\":{\"type\":\"ModelError\",\"message\":\"" + report + "\",\"hint\":\"\"}}\n");
  _exit(7);
}

static string scratch(const char* file) {
  const char* folder = getenv("TMPDIR");
  return string(folder ? folder : "/tmp") + "/" + file;
}

// what a descriptor yields: "0:TEXT", or the error
static string content(long descriptor) {
  if (descriptor < 0) return errors(descriptor);
  char text[41] = {0};
  long size = read(descriptor, text, 40);
  if (size < 0) return errors(size);
  for (long i = 0; i < size; ++i) if (text[i] <= ' ' || text[i] > '~') text[i] = '_';
  close(descriptor);
  return string("0:") + text;
}
static string opened(const string& path) { return content(open(path.c_str(), O_RDONLY)); }

static long by_32_bits(long number, long one, long two, long three) {
  long result;
  asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(one), "c"(two), "d"(three) : "memory", "r8", "r9", "r10", "r11");
  if (result < 0 && result > -4096) { errno = -result; return -1; }
  return result;
}

static string mapped(const string& path) {
  int descriptor = open(path.c_str(), O_RDONLY);
  if (descriptor < 0) return errors(-1);
  void* at = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, descriptor, 0);
  return at == MAP_FAILED ? errors(-1) : "0:" + string(static_cast<char*>(at), 20);
}

static string any_of(const string& folder) {
  DIR* listed = opendir(folder.c_str());
  if (!listed) return errors(-1);
  while (dirent* entry = readdir(listed)) {
    if (entry->d_name[0] == '.') continue;
    if (open((folder + "/" + entry->d_name).c_str(), O_RDONLY | O_NONBLOCK) >= 0) return "0";
  }
  return errors(-1);
}

static void read_secret(const string& path) {
  tell("open", opened(path));
  tell("openat", content(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDONLY, 0)));
  struct { uint64_t flags, mode, resolve; } how = {O_RDONLY, 0, 0};
  tell("openat2", content(syscall(437, AT_FDCWD, path.c_str(), &how, sizeof how)));
  tell("mmap", mapped(path));
  link(path.c_str(), scratch("hard").c_str());
  tell("hard", opened(scratch("hard")));
  if (symlink(path.c_str(), scratch("soft").c_str()) < 0) tell("soft", -1); else tell("soft", opened(scratch("soft")));
  tell("root", opened("/proc/self/root" + path));
  string parent = "/proc/" + std::to_string(getppid());
  tell("its_root", opened(parent + "/root" + path));
  tell("its_fd", any_of(parent + "/fd"));
  tell("environ", opened(parent + "/environ"));
  tell("memory", opened(parent + "/mem"));
  tell("folder", open(path.substr(0, path.rfind('/')).c_str(), O_RDONLY | O_DIRECTORY));
  tell("x32", content(syscall(0x40000000 | SYS_open, path.c_str(), O_RDONLY, 0)));
  char* low = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
  strcpy(low, path.c_str());
  tell("i386", content(by_32_bits(5, reinterpret_cast<long>(low), O_RDONLY, 0)));
}

static void write_outside(const string& path) {
  string folder = path.substr(0, path.rfind('/') + 1), own = scratch("own");
  close(open(own.c_str(), O_CREAT | O_WRONLY, 0600));
  tell("write", open(path.c_str(), O_WRONLY));
  tell("append", open(path.c_str(), O_WRONLY | O_APPEND));
  tell("create", open((folder + "new").c_str(), O_CREAT | O_WRONLY, 0600));
  tell("truncate", truncate(path.c_str(), 0));
  tell("rename", rename(own.c_str(), (folder + "new").c_str()));
  tell("exchange", syscall(SYS_renameat2, AT_FDCWD, own.c_str(), AT_FDCWD, path.c_str(), 2));
  tell("move", rename(path.c_str(), own.c_str()));
  tell("mkdir", mkdir((folder + "new").c_str(), 0700));
  tell("symlink", symlink("/etc", (folder + "new").c_str()));
  tell("link", link(path.c_str(), (folder + "new").c_str()));
  tell("mknod", mknod((folder + "new").c_str(), S_IFIFO | 0600, 0));
  tell("chmod", chmod(path.c_str(), 0777));
  tell("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, path.c_str(), 0777));
  tell("chown", chown(path.c_str(), 1, 1));
  tell("utimes", utimensat(AT_FDCWD, path.c_str(), nullptr, 0));
  tell("xattr", setxattr(path.c_str(), "user.x", "y", 1, 0));
  tell("unlink", unlink(path.c_str()));
  tell("oom", [] { int at = open("/proc/self/oom_score_adj", O_WRONLY); return at < 0 ? -1L : write(at, "0", 1); }());
}

static long connected(int family, int type, const void* address, socklen_t size) {
  int one = socket(family, type, 0);
  if (one < 0) return -1;
  return type == SOCK_DGRAM ? sendto(one, "x", 1, 0, static_cast<const sockaddr*>(address), size)
                            : connect(one, static_cast<const sockaddr*>(address), size);
}
static sockaddr_un unix_address(const string& path, bool abstract = false) {
  sockaddr_un address = {AF_UNIX, {0}};
  memcpy(address.sun_path + abstract, path.data(), path.size());
  return address;
}
// a socket of a pair sends to another address than its peer
static long by_pair(int type, const sockaddr_un& address, socklen_t size) {
  int pair[2];
  if (socketpair(AF_UNIX, type, 0, pair) < 0) return -1;
  if (connect(pair[0], reinterpret_cast<const sockaddr*>(&address), size) < 0) return -1;
  return write(pair[0], "x", 1);
}

static void network(const Arguments& given) {  // port, path, path of datagrams, abstract name
  int port = atoi(given[0].c_str());
  sockaddr_in four = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
  sockaddr_in6 six = {AF_INET6, htons(port), 0, IN6ADDR_LOOPBACK_INIT, 0};
  sockaddr_un path = unix_address(given[1]), datagrams = unix_address(given[2]), abstract = unix_address(given[3], true);
  socklen_t abstract_size = offsetof(sockaddr_un, sun_path) + 1 + given[3].size();
  tell("tcp4", connected(AF_INET, SOCK_STREAM, &four, sizeof four));
  tell("tcp6", connected(AF_INET6, SOCK_STREAM, &six, sizeof six));
  tell("udp", connected(AF_INET, SOCK_DGRAM, &four, sizeof four));
  tell("unix", connected(AF_UNIX, SOCK_STREAM, &path, sizeof path));
  tell("datagram", connected(AF_UNIX, SOCK_DGRAM, &datagrams, sizeof datagrams));
  tell("abstract", connected(AF_UNIX, SOCK_STREAM, &abstract, abstract_size));
  tell("pair", by_pair(SOCK_DGRAM, datagrams, sizeof datagrams));
  tell("pair_stream", by_pair(SOCK_STREAM, path, sizeof path));
  tell("pair_sequence", by_pair(SOCK_SEQPACKET, path, sizeof path));
  sockaddr_in any = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
  int one = socket(AF_INET, SOCK_STREAM, 0);
  tell("bind", one < 0 ? -1 : bind(one, reinterpret_cast<sockaddr*>(&any), sizeof any));
  tell("netlink", socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
  tell("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
  tell("packet", socket(AF_PACKET, SOCK_RAW, 0));
  tell("vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
  tell("x32", syscall(0x40000000 | SYS_socket, AF_INET, SOCK_STREAM, 0));
  tell("i386", by_32_bits(359, AF_INET, SOCK_STREAM, 0));
  char parameters[120] = {0};
  tell("uring", syscall(425, 2, parameters));
}

static long by_owner(pid_t target, int number) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return -1;
  if (fcntl(pair[0], 10 /* F_SETSIG */, number) < 0 || fcntl(pair[0], F_SETOWN, target) < 0) return -1;
  if (fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK) < 0) return -1;
  return write(pair[1], "x", 1);
}

// the named processes, and the parent unless they are to be killed; SIGCONT shows that a signal may be sent
static void other_processes(const Arguments& given) {
  Arguments all = given;
  bool kills = given.back() == "kill";
  if (!kills) all.push_back(std::to_string(getppid()));
  std::vector<string> names = {"kill", "group", "tgkill", "queue", "trace", "seize", "read", "pidfd", "signal", "getfd",
                               "limit", "nice", "idle", "pages", "affinity", "mem"};
  std::vector<string> results(names.size(), "");
  for (const string& one : all) {
    pid_t target = atoi(one.c_str());
    if (target <= 1) continue;
    char buffer[8];
    iovec here = {buffer, 8}, there = {reinterpret_cast<void*>(&report), 8};
    rlimit limit = {1000, 1000};
    cpu_set_t cpus; CPU_ZERO(&cpus); CPU_SET(0, &cpus);
    siginfo_t queued; memset(&queued, 0, sizeof queued); queued.si_code = -1; queued.si_signo = SIGCONT;
    int held = syscall(434, target, 0);
    string held_error = errors(held);
    std::vector<string> found = {
        errors(kill(target, SIGCONT)), errors(kill(-target, SIGCONT)), errors(syscall(SYS_tgkill, target, target, SIGCONT)),
        errors(syscall(SYS_rt_sigqueueinfo, target, SIGCONT, &queued)), errors(syscall(SYS_ptrace, 16, target, 0, 0)),
        errors(syscall(SYS_ptrace, 0x4206, target, 0, 0)), errors(syscall(310, target, &here, 1, &there, 1, 0)),
        held_error, held < 0 ? held_error : errors(syscall(424, held, SIGCONT, nullptr, 0)),
        held < 0 ? held_error : errors(syscall(438, held, 0, 0)), errors(syscall(302, target, RLIMIT_CORE, &limit, nullptr)),
        errors(setpriority(PRIO_PROCESS, target, 19)), errors(syscall(SYS_ioprio_set, 1, target, 3 << 13)),
        errors(syscall(256, target, 0, nullptr, nullptr)), errors(syscall(SYS_sched_setaffinity, target, sizeof cpus, &cpus)),
        opened("/proc/" + one + "/mem")};
    if (kills) found[0] = errors(kill(target, SIGKILL));
    if (!kills) by_owner(target, SIGKILL);  // shows in the process alone
    for (size_t i = 0; i < names.size(); ++i) results[i] += (results[i].empty() ? "" : ",") + found[i];
  }
  for (size_t i = 0; i < names.size(); ++i) if (names[i] != "pidfd") tell(names[i].c_str(), results[i]);
}

static long child(long pid) {
  if (pid == 0) { for (int i = 0; i < 600; ++i) usleep(100000); _exit(0); }
  return pid;
}
static void processes() {
  tell("fork", child(syscall(SYS_fork)));
  tell("vfork", [] { long pid = syscall(SYS_vfork); if (pid == 0) _exit(0); return pid; }());
  tell("clone", child(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)));
  tell("untraced", child(syscall(SYS_clone, 0x00800000 /* CLONE_UNTRACED */ | 0x8000 /* CLONE_PARENT */, 0, 0, 0, 0)));
  uint64_t how[11] = {0}; how[4] = SIGCHLD;
  tell("clone3", child(syscall(435, how, sizeof how)));
  tell("group", setpgid(0, 0)); tell("session", setsid());
  tell("death", prctl(PR_SET_PDEATHSIG, 0));
  tell("death2", syscall(SYS_prctl, (1L << 32) | PR_SET_PDEATHSIG, 17, 0, 0, 0));
  tell("x32", child(syscall(0x40000000 | SYS_fork)));
  tell("i386", child(by_32_bits(2, 0, 0, 0)));
  char* none[] = {nullptr};
  tell("exec_su", execve("/bin/su", none, none));
  tell("execveat", syscall(322, AT_FDCWD, "/usr/bin/passwd", none, none, 0));
}

static void kernel() {
  char text[128] = {0};
  tell("mount", syscall(SYS_mount, "none", scratch("").c_str(), "tmpfs", 0, 0));
  tell("umount", syscall(SYS_umount2, "/nothing", 0));
  tell("user_space", syscall(SYS_unshare, 0x10000000)); tell("mount_space", syscall(SYS_unshare, 0x00020000));
  tell("new_user", child(syscall(SYS_clone, 0x10000000 | SIGCHLD, 0, 0, 0, 0)));
  tell("open_tree", syscall(428, AT_FDCWD, "/", 1)); tell("fsopen", syscall(430, "tmpfs", 0));
  tell("chroot", syscall(SYS_chroot, scratch("").c_str()));
  tell("keyring", syscall(SYS_keyctl, 0, -3, 1)); tell("key", syscall(SYS_add_key, "user", "x", "y", 1, -3));
  tell("bpf", syscall(321, 0, text, 128)); tell("perf", syscall(298, text, 0, -1, -1, 0));
  tell("faults", syscall(323, 1)); tell("handle", syscall(304, AT_FDCWD, text, 0));
  tell("memfd", syscall(319, "x", 0)); tell("memory", mmap(nullptr, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
  int zero = open("/dev/zero", O_RDONLY);
  tell("zero", zero < 0 || mmap(nullptr, 4096, PROT_READ, MAP_SHARED, zero, 0) == MAP_FAILED ? -1 : 0);
  tell("shm", syscall(SYS_shmget, 0, 4096, 01600)); tell("secret_memory", syscall(447, 0));
  tell("semaphores", syscall(SYS_semget, 0, 1, 01600)); tell("semaphore", syscall(SYS_semop, 0, text, 1));
  tell("messages", syscall(SYS_msgget, 0, 01600)); tell("sends", syscall(SYS_msgsnd, 0, text, 1, 04000));
  tell("receives", syscall(SYS_msgrcv, 0, text, 1, 0, 04000));
  tell("terminal", open("/dev/tty", O_RDWR)); tell("hides", prctl(PR_SET_DUMPABLE, 0));
}

static int spin(void*) { for (;;) pause(); }
static void threads(long most) {
  static char stack[1 << 16];
  for (long made = 0; made < most; ++made) {  // on one stack: they only sleep
    if (clone(spin, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD, nullptr) < 0) {
      tell("threads", -1);
      return;
    }
  }
  tell("threads", 0);
}

// a process of a session of its own, whose parent has ended; it tells its number
static void leave() {
  int pipes[2];
  if (pipe(pipes) < 0) { tell("left", -1); return; }
  long pid = syscall(SYS_fork);
  if (pid < 0) { tell("left", -1); return; }
  if (pid == 0) {
    setsid();
    long last = syscall(SYS_fork);
    if (last != 0) _exit(0);
    pid_t own = getpid();
    if (write(pipes[1], &own, sizeof own) < 0) _exit(1);
    for (int descriptor = 0; descriptor < 100; ++descriptor) close(descriptor);
    sleep(600);
    _exit(0);
  }
  pid_t left = 0;
  waitpid(pid, nullptr, 0);
  if (read(pipes[0], &left, sizeof left) < 0) left = 0;
  tell("left", "0:" + std::to_string(left));
}

static void memory() {
  rlimit most;  // a soft limit is no limit for native code
  if (getrlimit(RLIMIT_DATA, &most) == 0) { most.rlim_cur = most.rlim_max; setrlimit(RLIMIT_DATA, &most); }
  for (long mebibytes = 0;; mebibytes += 64) {
    void* some = malloc(64 << 20);
    if (!some) { tell("malloc", -1); tell("mebibytes", std::to_string(mebibytes)); return; }
    memset(some, 1, 64 << 20);
  }
}

enum Files { LARGE, MANY, HIDDEN };
static void disk(Files kind, long most) {
  static char data[1 << 20];
  memset(data, 'x', sizeof data);
  for (long number = 0; number < most; ++number) {
    string path = scratch(("f" + std::to_string(number)).c_str());
    int one = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
    if (one < 0) { tell("open", -1); return; }
    if (kind == HIDDEN) unlink(path.c_str());
    for (long size = 0;;) {
      long written = write(one, data, kind == MANY ? 1 : sizeof data);
      if (written < 0) { tell("write", -1); if (kind != MANY) return; break; }
      size += written;
      if (kind == MANY || size >= 8 << 20) break;
    }
    if (kind != HIDDEN) close(one);
  }
  tell("disk", 0);
}

// folders in folders, and names that are no text
static void nest(long depth) {
  int here = open(scratch("").c_str(), O_RDONLY | O_DIRECTORY);
  for (long made = 0; made < depth; ++made) {
    if (mkdirat(here, "\xff\n\x1b[2J", 0700) < 0) { tell("mkdir", -1); return; }
    int inner = openat(here, "\xff\n\x1b[2J", O_RDONLY | O_DIRECTORY);
    if (inner < 0) { tell("openat", -1); return; }
    close(here);
    here = inner;
  }
  close(openat(here, "\xfe", O_CREAT | O_WRONLY, 0600));
  tell("nest", 0);
}

static void log_without_end(long mebibytes) {
  string line(1 << 20, 'x');
  signal(SIGXFSZ, SIG_IGN);
  for (long sent = 0; sent < mebibytes; ++sent)
    for (size_t at = 0; at < line.size();) {
      long size = write(2, line.data() + at, line.size() - at);
      if (size < 0) { tell("log", -1); return; }
      at += size;
    }
  tell("log", 0);
}

static void flood(const string& message) {
  string many;
  while (many.size() < (1 << 20)) many += message;
  for (int i = 0; i < 2048; ++i) say(many);
}

// their second argument is how many seconds the worker stays afterwards
static bool attempts_that_last() {
  for (const char* one : {"threads", "large", "many", "hidden", "nest"}) if (name == one) return true;
  return false;
}

static void stay(const string& seconds) { sleep(atoi(seconds.c_str())); }

static void on_run() {
  static bool done = false;
  if (done) return;
  done = true;
  if (name == "forge_run") say(arguments[0] + "\n");
  if (name == "log") {  // what is written while a session is made is cut by the worker
    log_without_end(atol(arguments[0].c_str()));
    stay(arguments[1]);
    finish();
  }
}

static void attack(const void* info) {
  size_t size = 0;
  call(kKernelInfoGetAttribute_string, info, "attempts", static_cast<char*>(nullptr), &size);
  string text(size, 0);
  if (call(kKernelInfoGetAttribute_string, info, "attempts", &text[0], &size)) return;
  arguments.clear();
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    if (end == string::npos) end = strlen(text.c_str());
    arguments.push_back(text.substr(at, end - at));
    if (end >= strlen(text.c_str())) break;
  }
  name = arguments[0];
  arguments.erase(arguments.begin());
  if (name == "none" || name == "forge_run" || name == "log") return;
  if (name == "read") read_secret(arguments[0]);
  if (name == "write") write_outside(arguments[0]);
  if (name == "network") network(arguments);
  if (name == "processes") processes();
  if (name == "others") other_processes(arguments);
  if (name == "kernel") kernel();
  if (name == "threads") threads(atol(arguments[0].c_str()));
  if (name == "leave") leave();
  if (name == "memory") memory();
  if (name == "large") disk(LARGE, atol(arguments[0].c_str()));
  if (name == "many") disk(MANY, atol(arguments[0].c_str()));
  if (name == "hidden") disk(HIDDEN, atol(arguments[0].c_str()));
  if (name == "nest") nest(atol(arguments[0].c_str()));
  if (name == "exit") { string last = "\x1b[2J\x1b[31mattack: the end\n"; if (write(2, last.data(), last.size())) _exit(7); }
  if (name == "escape") report = "\\u001b]0;owned\\u0007\\u001b[2J\\u001b[31mattack: \\u202e <script>alert(1)</script> [red]x[/red]";
  if (name == "forge") { say(arguments[0] + "\n"); return; }
  if (name == "flood") flood(arguments[0] + "\n");
  if (arguments.size() == 2 && attempts_that_last()) stay(arguments[1]);
  if (name == "endless") { string line(1 << 20, '['); for (int i = 0; i < 2048; ++i) say(line); }
  finish();
}
