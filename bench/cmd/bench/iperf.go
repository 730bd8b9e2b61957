package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/internal/tool/tcpport"
)

// iperf returns the case of one TCP stream over loopback.
func iperf() *bench.Case {
	return &bench.Case{Name: "iperf3, one TCP stream", Sample: func(d time.Duration) (rate float64, err error) {
		// iperf3 sometimes fails to reach its own server without a message.
		for range 5 {
			if err = attempt(func() { rate = iperfStream(d) }); err == nil {
				break
			}
		}
		return rate, err
	}}
}

// iperfStream measures a TCP stream of iperf3 over loopback, in GB/s.
func iperfStream(d time.Duration) float64 {
	port := must(tcpport.Free())
	ctx, cancel := context.WithTimeout(context.Background(), d+2*patience)
	defer cancel()
	server := exec.CommandContext(ctx, "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port)
	check(server.Start())
	defer func() { cancel(); _ = server.Wait() }()
	check(tcpport.Await(ctx, port))
	seconds := strconv.Itoa(max(1, int(d.Round(time.Second).Seconds())))
	out, err := exec.CommandContext(ctx, "iperf3", "-c", "127.0.0.1", "-p", port, "-t", seconds, "-J").Output()
	var report struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err == nil {
		err = json.Unmarshal(out, &report)
	}
	if err == nil && report.End.Received.BitsPerSecond == 0 {
		err = errors.New("no figure")
	}
	if err != nil {
		check(fmt.Errorf("iperf3: %w: %.200s", err, report.Error))
	}
	return report.End.Received.BitsPerSecond / 8e9
}
