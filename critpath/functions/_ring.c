/* Notes entries and exits of Python functions: the callbacks of sys.monitoring.
   The limited API: one file for every Python from 3.12 on, whichever built it (decision 17).

   A thread writes into a slot: a file with a header, a window of events that is mapped, and behind
   it the windows that were full, written by the thread itself.  What was noted outlives the process
   however that ends.  A thread that ends leaves its slot to the next. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 4096, EVENTS = 4096, MOST_FUNCTIONS = 1 << 20 };

struct event {
  uint64_t time; /* CLOCK_MONOTONIC */
  uint32_t code; /* 2 * number, + 1 for an exit */
  int32_t tid;
};

struct head {
  char magic[8];
  uint32_t pid, count; /* events of the window */
  uint64_t windows;    /* that were full */
  uint64_t lost;
  uint64_t most; /* windows that are kept: the newest overwrite the oldest; 0 for all */
};

struct slot {
  struct head *head;
  struct event *events;
  int file;
  dev_t device;
  ino_t inode;
  int32_t tid;
  struct slot *next;
};

struct plant {
  uint64_t entries, exits, known;
  int64_t time; /* of all calls that ended, less when those that have not begun */
};

static __thread struct slot *mine;
static pthread_key_t ending;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *unused;
static int directory = -1, slots, failed;
static uint64_t most_windows;
static struct {
  PyObject *code;
  uint32_t number;
} *table;
static size_t room; /* a power of two, or 0 */
static uint32_t functions;
static struct plant *plants;
static size_t plant_room;
static PyObject *adjust, *discover, *disable;
static uint64_t next_look, interval = 100000000;
static int64_t events_left, events_between = INT64_MAX;

static inline uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline size_t place_of(const PyObject *code) {
  uint64_t hash = ((uintptr_t)code >> 4) * 0x9E3779B97F4A7C15u;
  return (size_t)(hash >> 32) & (room - 1);
}

/* The number of a function; 0 for one that is not recorded. */
static inline uint32_t find(const PyObject *code) {
  if (!room)
    return 0;
  for (size_t at = place_of(code);; at = (at + 1) & (room - 1)) {
    if (table[at].code == code)
      return table[at].number;
    if (!table[at].code)
      return 0;
  }
}

static int flush(struct slot *slot) {
  struct head *head = slot->head;
  size_t size = sizeof(struct event) * head->count;
  uint64_t place = most_windows ? head->windows % most_windows : head->windows;
  off_t at = HEADER + (off_t)sizeof(struct event) * EVENTS * (off_t)(1 + place);
  struct stat now; /* the program may have closed it, and have its own file of this number */
  ssize_t done = -1;
  if (fstat(slot->file, &now) == 0 && now.st_dev == slot->device && now.st_ino == slot->inode)
    done = pwrite(slot->file, slot->events, size, at);
  if (done == (ssize_t)size)
    head->windows++;
  else
    head->lost += head->count; /* a full disk */
  head->count = 0;
  return done == (ssize_t)size;
}

static struct slot *make_slot(void) {
  char name[64];
  pthread_mutex_lock(&lock);
  struct slot *slot = unused;
  if (slot)
    unused = slot->next;
  int number = slots++;
  pthread_mutex_unlock(&lock);
  if (!slot) {
    slot = calloc(1, sizeof *slot);
    if (!slot)
      return NULL;
    snprintf(name, sizeof name, "%d-%d.slot", (int)getpid(), number);
    slot->file = openat(directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int high = slot->file < 0 ? -1 : fcntl(slot->file, F_DUPFD_CLOEXEC, 800); /* as agent.py */
    if (high >= 0) {
      close(slot->file);
      slot->file = high;
    }
    struct stat own = {0};
    if (slot->file >= 0)
      fstat(slot->file, &own);
    slot->device = own.st_dev;
    slot->inode = own.st_ino;
    size_t size = HEADER + sizeof(struct event) * EVENTS;
    char *at = MAP_FAILED;
    /* Allocated, not only sized: a full disk is an error here, and no signal later. */
    if (slot->file >= 0 && posix_fallocate(slot->file, 0, (off_t)size) == 0)
      at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, slot->file, 0);
    if (at == MAP_FAILED) {
      if (slot->file >= 0)
        close(slot->file);
      free(slot);
      return NULL;
    }
    slot->head = (struct head *)at;
    slot->events = (struct event *)(at + HEADER);
    memcpy(slot->head->magic, "critfun1", 8);
    slot->head->pid = (uint32_t)getpid();
    slot->head->most = most_windows;
  }
  slot->tid = (int32_t)syscall(SYS_gettid);
  mine = slot;
  pthread_setspecific(ending, slot);
  return slot;
}

static void leave_slot(void *of) {
  struct slot *slot = of;
  pthread_mutex_lock(&lock);
  slot->next = unused;
  unused = slot;
  mine = NULL;
  pthread_mutex_unlock(&lock);
}

static inline void look(uint64_t now) {
  next_look = now + interval;
  events_left = events_between;
  PyObject *done = adjust ? PyObject_CallNoArgs(adjust) : NULL;
  if (!done)
    PyErr_Clear(); /* the program knows nothing of it */
  Py_XDECREF(done);
}

static inline uint64_t note(uint32_t number, uint32_t exit) {
  struct slot *slot = mine;
  if (__builtin_expect(!slot, 0)) {
    if (directory < 0 || failed)
      return 0;
    slot = make_slot();
    if (!slot) {
      failed = 1;
      return 0;
    }
  }
  uint64_t now = now_ns();
  struct plant *plant = plants + number;
  if (exit) {
    plant->exits++;
    plant->time += (int64_t)now;
  } else {
    plant->entries++;
    plant->time -= (int64_t)now;
  }
  struct event *event = slot->events + slot->head->count;
  event->time = now;
  event->code = 2 * number + exit;
  event->tid = slot->tid;
  if (__builtin_expect(++slot->head->count == EVENTS, 0))
    flush(slot);
  events_left--;
  return now;
}

static inline PyObject *on_event(PyObject *const *arguments, Py_ssize_t count, uint32_t exit) {
  if (count) {
    uint32_t number = find(arguments[0]);
    if (number) {
      uint64_t now = note(number, exit);
      if (__builtin_expect(now >= next_look || events_left < 0, 0) && now)
        look(now);
    }
  }
  Py_RETURN_NONE;
}

static PyObject *on_entry(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
  (void)self;
  return on_event(arguments, count, 0);
}

static PyObject *on_exit_(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
  (void)self;
  return on_event(arguments, count, 1);
}

/* The first call of a function: never again asked for it. */
static PyObject *on_first(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
  (void)self;
  if (count && discover && !find(arguments[0])) {
    PyObject *globals = PyEval_GetGlobals(); /* borrowed: of the function that was called */
    PyObject *module = globals ? PyDict_GetItemString(globals, "__name__") : NULL;
    PyObject *done = PyObject_CallFunctionObjArgs(discover, arguments[0], module ? module : Py_None, NULL);
    if (!done)
      PyErr_Clear();
    Py_XDECREF(done);
    uint32_t number = find(arguments[0]);
    if (number)
      note(number, 0);
  }
  Py_INCREF(disable);
  return disable;
}

static int grow_table(void) {
  size_t before = room, wanted = room ? 2 * room : 1024;
  __typeof__(table) old = table, made = calloc(wanted, sizeof *table);
  if (!made)
    return 0;
  table = made;
  room = wanted;
  for (size_t i = 0; i < before; i++)
    if (old[i].code) {
      size_t at = place_of(old[i].code);
      while (table[at].code)
        at = (at + 1) & (room - 1);
      table[at] = old[i];
    }
  free(old);
  return 1;
}

static PyObject *add(PyObject *self, PyObject *code) {
  (void)self;
  if (find(code))
    return PyLong_FromUnsignedLong(find(code));
  if (functions >= MOST_FUNCTIONS)
    return PyLong_FromLong(0);
  if (2 * ((size_t)functions + 1) > room && !grow_table())
    return PyErr_NoMemory();
  if (functions + 2 > plant_room) {
    size_t wanted = plant_room ? 2 * plant_room : 1024;
    struct plant *made = realloc(plants, wanted * sizeof *plants);
    if (!made)
      return PyErr_NoMemory();
    memset(made + plant_room, 0, (wanted - plant_room) * sizeof *plants);
    plants = made;
    plant_room = wanted;
  }
  size_t at = place_of(code);
  while (table[at].code)
    at = (at + 1) & (room - 1);
  Py_INCREF(code); /* so that no other gets its address */
  table[at].code = code;
  table[at].number = ++functions;
  return PyLong_FromUnsignedLong(functions);
}

/* What was called since this was last asked: (number, events, calls that ended, their time in ns). */
static PyObject *take_counts(PyObject *self, PyObject *unused_) {
  (void)self;
  (void)unused_;
  PyObject *found = PyList_New(0);
  uint64_t now = now_ns();
  for (uint32_t i = 1; found && i <= functions; i++) {
    struct plant *plant = plants + i;
    uint64_t events = plant->entries + plant->exits;
    if (events == plant->known)
      continue;
    int64_t open = (int64_t)(plant->entries - plant->exits);
    int64_t time = plant->time + open * (int64_t)now;
    PyObject *row = Py_BuildValue("IKKL", i, (unsigned long long)(events - plant->known),
                                  (unsigned long long)plant->exits, (long long)time);
    plant->known = events;
    if (!row || PyList_Append(found, row)) {
      Py_XDECREF(row);
      Py_CLEAR(found);
      break;
    }
    Py_DECREF(row);
  }
  return found;
}

static PyObject *look_every(PyObject *self, PyObject *arguments) {
  (void)self;
  unsigned long long ns;
  long long events;
  if (!PyArg_ParseTuple(arguments, "KL", &ns, &events))
    return NULL;
  interval = ns;
  events_between = events_left = events;
  next_look = now_ns() + interval;
  Py_RETURN_NONE;
}

/* Of each thread this many full windows are kept from now on, the newest; 0 for all. */
static PyObject *keep_newest(PyObject *self, PyObject *most) {
  (void)self;
  most_windows = PyLong_AsUnsignedLongLong(most);
  if (PyErr_Occurred())
    return NULL;
  Py_RETURN_NONE;
}

static PyObject *set_up(PyObject *self, PyObject *arguments) {
  (void)self;
  PyObject *first, *every, *off;
  int given;
  if (!PyArg_ParseTuple(arguments, "iOOO", &given, &first, &every, &off))
    return NULL;
  directory = given;
  Py_INCREF(first);
  Py_INCREF(every);
  Py_INCREF(off);
  discover = first;
  adjust = every;
  disable = off;
  next_look = UINT64_MAX;
  Py_RETURN_NONE;
}

/* In a child: the parent's slots are the parent's. */
static PyObject *after_fork(PyObject *self, PyObject *unused_) {
  (void)self;
  (void)unused_;
  pthread_mutex_init(&lock, NULL);
  unused = NULL;
  mine = NULL;
  pthread_setspecific(ending, NULL);
  for (uint32_t i = 1; i <= functions; i++)
    plants[i] = (struct plant){0};
  Py_RETURN_NONE;
}

/* Forget what this thread has noted: it was a measurement. */
static PyObject *forget(PyObject *self, PyObject *unused_) {
  (void)self;
  (void)unused_;
  if (mine)
    mine->head->count = 0;
  for (uint32_t i = 1; i <= functions; i++)
    plants[i] = (struct plant){0};
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"on_entry", (PyCFunction)(void (*)(void))on_entry, METH_FASTCALL, NULL},
    {"on_exit", (PyCFunction)(void (*)(void))on_exit_, METH_FASTCALL, NULL},
    {"on_first", (PyCFunction)(void (*)(void))on_first, METH_FASTCALL, NULL},
    {"add", add, METH_O, NULL},
    {"take_counts", take_counts, METH_NOARGS, NULL},
    {"look_every", look_every, METH_VARARGS, NULL},
    {"set_up", set_up, METH_VARARGS, NULL},
    {"keep_newest", keep_newest, METH_O, NULL},
    {"after_fork", after_fork, METH_NOARGS, NULL},
    {"forget", forget, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_ring", "Notes entries and exits of functions.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__ring(void) {
  if (pthread_key_create(&ending, leave_slot))
    return PyErr_SetFromErrno(PyExc_OSError);
  return PyModule_Create(&definition);
}
