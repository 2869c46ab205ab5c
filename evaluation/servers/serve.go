// A server of net/http whose handlers share eight connections to Redis:
// serve PORT CONNECTIONS REDIS_PORT TRUTH.
// Rows of TRUTH are as in pool.c; every request makes two sub-requests, one after the other.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

var free = make(chan net.Conn, 1024)

// now is CLOCK_MONOTONIC, as the kernel's events and the client have it.
func now() int64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func query(id int) string {
	socket := <-free
	defer func() { free <- socket }()
	begin := now()
	fmt.Fprintf(socket, "INCR g%d\r\n", id%50)
	var answer [128]byte
	if _, err := socket.Read(answer[:]); err != nil {
		log.Fatal(err)
	}
	return fmt.Sprintf("%d:%d:%d", socket.LocalAddr().(*net.TCPAddr).Port, begin, now())
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
	count, _ := strconv.Atoi(os.Args[2])
	for i := 0; i < count; i++ {
		socket, err := net.Dial("tcp", "127.0.0.1:"+os.Args[3])
		if err != nil {
			log.Fatal(err)
		}
		free <- socket
	}
	http.HandleFunc("/", func(to http.ResponseWriter, request *http.Request) {
		begin := now()
		id, _ := strconv.Atoi(request.URL.Query().Get("id"))
		sink := spin(20000)
		first := query(id)
		sink += spin(40000)
		second := query(id)
		_, peer, _ := net.SplitHostPort(request.RemoteAddr)
		fmt.Fprintf(to, "%d\n", id)
		if sink == 1 {
			fmt.Fprintln(to)
		}
		fmt.Fprintf(place, "%d %d %d %d %s %s %s\n",
			id, syscall.Gettid(), begin, now(), peer, first, second)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
