package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// openTerminal opens both ends of a new terminal, which are closed with the test.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	fatal.If(t, err)
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// TestProgressWidth draws the progress on terminals of several widths. No line may be longer than the terminal,
// because it could not be erased; the one of 20 columns shows a percentage, or the bytes.
func TestProgressWidth(t *testing.T) {
	for _, width := range []uint16{20, 40, 60, 80, 120} {
		for title, total := range map[string]int64{"/srv/images/of/the/machines/disk.img": 400e6, "standard input": -1} {
			t.Run(fmt.Sprint(width, " ", total), func(t *testing.T) {
				t.Parallel()
				master, slave := openTerminal(t)
				fatal.If(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}))
				p := startProgress(slave, int(width), title, total)
				p.set(300e6)
				time.Sleep(patience + 2*redraw)
				p.end()
				slave.WriteString("end")
				text, buf := "", make([]byte, 4096)
				for !strings.HasSuffix(text, "end") {
					n, err := master.Read(buf)
					fatal.If(t, err)
					text += string(buf[:n])
				}
				shown := ""
				for line := range strings.SplitSeq(text, "\r") {
					if n := utf8.RuneCountInString(line); n > int(width) {
						t.Errorf("%d columns: %q", n, line)
					}
					if strings.TrimSpace(line) != "" && line != "end" {
						shown = line
					}
				}
				if want := map[bool]string{false: "75%", true: "300 MB"}[total < 0]; !strings.Contains(shown, want) {
					t.Errorf("it shows %q, want %q", shown, want)
				}
			})
		}
	}
}
