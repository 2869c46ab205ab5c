// A gRPC server in Go for streams.py: serve_grpc PORT BACKEND. Messages are bytes; handlers share
// eight connections to the backend.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
)

type pair struct {
	socket net.Conn
	reader *bufio.Reader
}

var free = make(chan pair, 8)

// raw is a codec: a message is its bytes.
type raw struct{}

func (raw) Marshal(v interface{}) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v interface{}) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "proto" }
func (raw) String() string { return "proto" }

func call(number []byte) ([]byte, error) {
	one := <-free
	defer func() { free <- one }()
	fmt.Fprintf(one.socket, "%s\n", number)
	return one.reader.ReadBytes('\n')
}

func made(kind int) func(interface{}, context.Context, func(interface{}) error,
	grpc.UnaryServerInterceptor) (interface{}, error) {
	return func(_ interface{}, _ context.Context, decode func(interface{}) error,
		_ grpc.UnaryServerInterceptor) (interface{}, error) {
		var number []byte
		if err := decode(&number); err != nil {
			return nil, err
		}
		if kind == 1 {
			time.Sleep(2 * time.Millisecond)
		}
		answer, err := call(number)
		if kind == 2 {
			time.Sleep(time.Millisecond)
		}
		return &answer, err
	}
}

type service interface{}

func main() {
	for i := 0; i < cap(free); i++ {
		socket, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		free <- pair{socket, bufio.NewReader(socket)}
	}
	server := grpc.NewServer(grpc.CustomCodec(raw{}))
	for name, methods := range map[string]map[string]int{
		"shop.Orders": {"Get": 0, "List": 1}, "shop.Users": {"Find": 2}} {
		description := grpc.ServiceDesc{ServiceName: name, HandlerType: (*service)(nil)}
		for method, kind := range methods {
			description.Methods = append(description.Methods,
				grpc.MethodDesc{MethodName: method, Handler: made(kind)})
		}
		server.RegisterService(&description, new(int))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
