package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// programSeries measures programs under one run, with bench/hold.
func programSeries(r *runs) series {
	return series{
		name: "programs",
		columns: []string{"programs under one run", "memory of softmkey for each, KiB", "ms for one to start and connect a queue pair",
			"processor time of softmkey, all idle, %", "µs for a WRITE of 64 bytes by one of them", "ms for one to end"},
		sizes: []int{1, 5, 20, 100, 250, 500},
		measure: func(n int) []float64 {
			one := r.hold(1, 1, 0)
			many := one
			if n > 1 {
				many = r.hold(n, 1, 0)
			}
			kib := (many.memory - one.memory) / float64(n-1)
			if n == 1 {
				kib = one.memory
			}
			return []float64{kib, many.ready * 1e3 / float64(n), many.busy, many.write, many.ended * 1e3 / float64(n)}
		},
	}
}

// programQPSeries measures one program with many queue pairs.
func programQPSeries(r *runs) series {
	return series{
		name: "queue pairs of a program",
		columns: []string{"queue pairs of one program", "memory of softmkey, MiB", "ms to create and connect one",
			"processor time of softmkey, all idle, %", "µs for a WRITE of 64 bytes over the last one"},
		sizes: []int{1, 10, 100, 1000, 4000},
		measure: func(n int) []float64 {
			h := r.hold(1, n, 0)
			return []float64{h.memory / 1024, h.ready * 1e3 / float64(n), h.busy, h.write}
		},
	}
}

// threadSeries measures one program with many threads, which sleep.
func threadSeries(r *runs) series {
	return series{
		name: "threads of a program",
		columns: []string{"threads of one program that sleep", "µs for a WRITE of 64 bytes", "the same after a pause of 5 ms",
			"µs for a region, registered and ended", "µs for a queue pair, connected and ended"},
		sizes: []int{1, 10, 100, 1000},
		measure: func(n int) []float64 {
			h := r.hold(1, 1, n)
			return []float64{h.write, h.paused, h.register, h.connect}
		},
	}
}

// held are the figures of a run of bench/hold.
type held struct {
	ready, ended float64 // seconds
	write        float64 // microseconds
	paused       float64 // microseconds of a WRITE after a pause
	register     float64 // microseconds to register a region and to end that
	connect      float64 // microseconds to create and connect a queue pair, and to end it
	memory       float64 // resident memory of softmkey, KiB
	busy         float64 // processor time of softmkey while all programs are idle, %
}

// hold runs n programs with qps queue pairs, and further threads, each.
func (r *runs) hold(n, qps, threads int) (h held) {
	r.compile("hold")
	c := exec.Command(r.path("softmkey"), "run", "--", r.path("hold"), fmt.Sprint(n), fmt.Sprint(qps), fmt.Sprint(threads))
	c.Stderr = os.Stderr
	in, out := must(c.StdinPipe()), must(c.StdoutPipe())
	check(c.Start())
	err := attempt(func() {
		lines := bufio.NewReader(out)
		h.ready, h.write, h.paused = scanFigure(lines, "ready"), scanFigure(lines, "write"), scanFigure(lines, "paused")
		h.register, h.connect = scanFigure(lines, "register"), scanFigure(lines, "connect")
		h.memory = residentKiB(c.Process.Pid)
		before := ticks(c.Process.Pid)
		const pause = 2 * time.Second
		time.Sleep(pause)
		h.busy = 100 * (ticks(c.Process.Pid) - before) * tick.Seconds() / pause.Seconds()
		check(in.Close())
		h.ended = scanFigure(lines, "ended")
	})
	if err != nil {
		in.Close()
		c.Process.Kill()
	}
	check(errors.Join(err, c.Wait()))
	return h
}

// scanFigure reads a line with a name and a number.
func scanFigure(r *bufio.Reader, name string) (v float64) {
	line, err := r.ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		_, err = fmt.Sscanf(line, name+" %f", &v)
	}
	if err != nil {
		check(fmt.Errorf("hold: no figure %q in %q: %w", name, line, err))
	}
	return v
}

// residentKiB returns the resident memory of a process that belongs to it alone.
func residentKiB(pid int) (kib float64) {
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %f", &kib); err == nil {
			return kib
		}
	}
	check(fmt.Errorf("/proc/%d/status has no RssAnon", pid))
	return 0
}

// tick is the unit in which Linux reports the processor time of other processes.
const tick = 10 * time.Millisecond

// ticks returns the processor time of a process in ticks.
func ticks(pid int) float64 {
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))
	_, rest, _ := strings.Cut(string(text), ") ") // the name may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		check(fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2))
	}
	var user, system float64
	must(fmt.Sscan(fields[11]+" "+fields[12], &user, &system))
	return user + system
}
