// The Go server of faults.py: faulty PORT POSTGRES_PORT CONNECTIONS.
package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"strconv"

	_ "github.com/lib/pq"
)

var asks = map[string][]string{
	"/order": {"orders"}, "/carts": {"carts", "orders"}, "/stock": {"stocks"},
}

func main() {
	port, postgres := os.Args[1], os.Args[2]
	many, _ := strconv.Atoi(os.Args[3])
	database, err := sql.Open("postgres", "host=127.0.0.1 port="+postgres+
		" user=postgres dbname=postgres sslmode=disable")
	if err != nil {
		panic(err)
	}
	database.SetMaxOpenConns(many)
	database.SetMaxIdleConns(many)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		for _, what := range asks[r.URL.Path] {
			var count int
			var slept interface{}
			query := "select count(*) as " + what + ", pg_sleep(0.006) from generate_series(1, 500)"
			if err := database.QueryRow(query).Scan(&count, &slept); err != nil {
				panic(err)
			}
		}
		fmt.Fprint(w, "ok\n")
	})
	panic(http.ListenAndServe("127.0.0.1:"+port, nil))
}
