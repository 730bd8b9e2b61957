package interop

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// perftestRows are commands of Debian's perftest. Those with -R set up their connection
// with rdma_cm. The guest's processor is emulated, so the messages are few and small, and
// the timeout is a second (-u 18): a guest that needs longer than all retries to
// acknowledge its messages ends them. Both devices can do 8 READs or atomics at a time
// (-o 8); perftest takes the limit of the peer without asking its own device. With several
// QPs, the number of messages is a multiple of those that share a completion: otherwise
// perftest counts more completions than messages, and stops polling too early.
var perftestRows = []string{
	"ib_send_bw -n 100 -s 4096 -t 16",
	"ib_write_bw -n 100 -s 4096 -t 16",
	"ib_read_bw -o 8 -n 100 -s 4096",
	"ib_atomic_bw -o 8 -n 100",
	"ib_send_lat -n 100",
	"ib_write_lat -n 100",
	"ib_read_lat -o 8 -n 100",
	"ib_send_bw -c UC -n 100 -s 4096 -t 16",
	"ib_write_bw -c UC -n 100 -s 4096 -t 16",
	"ib_send_lat -c UC -n 100",
	"ib_send_bw -c UD -n 100 -s 1024 -t 16",
	"ib_send_lat -c UD -n 100",
	"ib_send_bw -a -n 5 -t 2",
	"ib_write_bw -a -n 5 -t 2",
	"ib_read_bw -o 8 -a -n 5",
	"ib_send_bw -b -n 100 -s 4096 -t 16",
	"ib_write_bw -b -n 100 -s 4096 -t 16",
	"ib_read_bw -o 8 -b -n 100 -s 4096",
	"ib_send_bw -c UD -b -n 100 -s 1024 -t 16",
	"ib_send_bw -q 4 -n 48 -s 4096 -t 8",
	"ib_write_bw -q 4 -n 48 -s 4096 -t 8",
	"ib_read_bw -o 8 -q 4 -n 100 -s 4096",
	"ib_send_bw -e -n 100 -s 4096 -t 16",
	"ib_send_lat -e -n 100",
	"ib_send_bw -c UD -e -n 100 -s 1024 -t 16",
	"ib_send_bw --use-srq -n 100 -s 4096 -t 16",
	"ib_send_bw --use-srq -q 4 -n 48 -s 4096 -t 8",
	"ib_send_bw -R -n 100 -s 4096 -t 16",
	"ib_write_bw -R -n 100 -s 4096 -t 16",
	"ib_read_bw -R -n 100 -s 4096",
	"ib_send_lat -R -n 100",
	"ib_send_bw -R -c UD -n 100 -s 1024 -t 16",
}

// TestPerftest runs perftest between softmkey run and the guest's soft-RoCE, with each
// side as the server, and prints the table of docs/seen.md. The regular expression
// PERFTEST_ONLY chooses commands.
func TestPerftest(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: the table of perftest belongs to the long form")
	}
	r := sharedRig(t)
	only := regexp.MustCompile(os.Getenv("PERFTEST_ONLY"))
	rows := []string{"| command | server in the guest | server under run |", "|---|---|---|"}
	for _, test := range perftestRows {
		if !only.MatchString(test) {
			continue
		}
		row := "| " + test + " |"
		command := test + " -F -u 18 -m 1024"
		pair := programPair{guest: " -d rxe0 -x 1", run: " -d mlx5_0 -x 3", tcp: pingPongPort}
		if strings.Contains(test, " -R ") {
			command = test + " -F -u 18"
			pair = programPair{}
		}
		pair.limit = 4 * patience // with -a, a busy guest moves 80 MB at 1 MB/s
		pair.server, pair.client = command, command+" %s"
		for _, guestServes := range []bool{true, false} {
			result := "runs"
			t.Run(sided(test, guestServes), func(t *testing.T) {
				err := racing(t, func() error { return runPair(t.Context(), t, r, guestServes, pair, nil) })
				if err != nil {
					result = "fails"
					t.Error(err)
				}
			})
			row += fmt.Sprintf(" %s |", result)
		}
		rows = append(rows, row)
	}
	t.Log("\n" + strings.Join(rows, "\n"))
}
