// Requests of three kinds, as `Shop` of apps.py, in net/http with pgx (v4, as Debian has it) and a
// pool of connections to Redis: shop PORT POSTGRES_PORT REDIS_PORT TRUTH.  Rows of TRUTH are as in
// pool.c.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v4/pgxpool"
)

var pool *pgxpool.Pool
var free = make(chan net.Conn, 1024)

// now is CLOCK_MONOTONIC, as the kernel's events and the client have it.
func now() int64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func port(of net.Conn) int { return of.LocalAddr().(*net.TCPAddr).Port }

func query(rows, id int) string {
	connection, err := pool.Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Release()
	of := []string{"orders", "basket", "stocks"}[id%3]
	text := "select count(*) as " + of + " from generate_series(1, $1::int)"
	var found int
	begin := now()
	if err := connection.QueryRow(context.Background(), text, rows).Scan(&found); err != nil {
		log.Fatal(err)
	}
	return fmt.Sprintf("%d:%d:%d", port(connection.Conn().PgConn().Conn()), begin, now())
}

func count(id int) string {
	socket := <-free
	defer func() { free <- socket }()
	begin := now()
	fmt.Fprintf(socket, "INCR a%d\r\n", id%10)
	var answer [128]byte
	if _, err := socket.Read(answer[:]); err != nil {
		log.Fatal(err)
	}
	return fmt.Sprintf("%d:%d:%d", port(socket), begin, now())
}

func spin(rounds int) int {
	x := rounds
	for i := 0; i < rounds; i++ {
		x = x*31 + i
	}
	return x
}

func main() {
	place, err := os.OpenFile(os.Args[4], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		log.Fatal(err)
	}
	size, err := strconv.Atoi(os.Getenv("POOL"))
	if err != nil {
		size = 8
	}
	where := fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?pool_max_conns=%d", os.Args[2], size)
	for pool == nil { // until the database is started
		if pool, err = pgxpool.Connect(context.Background(), where); err != nil {
			pool = nil
			time.Sleep(100 * time.Millisecond)
		}
	}
	for i := 0; i < size; i++ {
		socket, err := net.Dial("tcp", "127.0.0.1:"+os.Args[3])
		if err != nil {
			log.Fatal(err)
		}
		free <- socket
	}
	http.HandleFunc("/", func(to http.ResponseWriter, request *http.Request) {
		begin := now()
		id, _ := strconv.Atoi(request.URL.Query().Get("id"))
		rows := 200 + id*7919%3000
		sink := spin(20000)
		asked := []string{}
		for _, does := range []string{"QC", "CCQ", "Q.Q"}[id%3] {
			switch does {
			case 'Q':
				asked = append(asked, query(rows, id))
			case 'C':
				asked = append(asked, count(id))
			default:
				sink += spin(20000)
			}
		}
		_, peer, _ := net.SplitHostPort(request.RemoteAddr)
		fmt.Fprintf(to, "%d\n", id)
		if sink == 1 {
			fmt.Fprintln(to)
		}
		fmt.Fprintf(place, "%d %d %d %d %s %s\n",
			id, syscall.Gettid(), begin, now(), peer, strings.Join(asked, " "))
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
