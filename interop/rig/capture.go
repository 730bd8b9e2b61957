package rig

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// Capture is a running recording of one guest's link.
type Capture struct {
	File string

	process *os.Process
	ended   <-chan error
	once    sync.Once
	err     error
}

// Capture records every RoCEv2 frame between g and the bridge to a pcapng file,
// until [Capture.Stop] or Close.
func (r *Rig) Capture(g *Guest, file string) (*Capture, error) {
	cmd := exec.Command("dumpcap", "-q", "-i", g.Tap, "-f", "udp port 4791", "-B", "64", "-w", file)
	messages, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	c := &Capture{File: file}
	if c.process, c.ended, err = startBound(cmd); err != nil {
		return nil, err
	}
	// dumpcap prints the file's name once it is capturing.
	scanner, said := bufio.NewScanner(messages), ""
	for scanner.Scan() {
		said += scanner.Text() + "\n"
		if strings.HasPrefix(scanner.Text(), "File:") {
			go drain(scanner)
			r.captures = append(r.captures, c)
			return c, nil
		}
	}
	return nil, fmt.Errorf("rig: dumpcap: %w: %s", <-c.ended, said)
}

// drain reads the rest of dumpcap's output, so that dumpcap never blocks.
func drain(scanner *bufio.Scanner) {
	for scanner.Scan() {
	}
}

// Stop ends the recording. When it returns, the file is complete. Stopping twice does
// nothing.
func (c *Capture) Stop() error {
	c.once.Do(func() {
		if c.err = c.process.Signal(syscall.SIGINT); c.err == nil {
			c.err = <-c.ended
		}
	})
	return c.err
}
