// Package metrics serves what the devices of a run do to Prometheus.
//
// Each field of [rdma.Counters] is a counter with the labels device and address. Its name is that
// of the field in JSON, with the prefix softmkey_ and the suffix _total, its help text the field's tag.
package metrics

import (
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/base/webserver"
	"github.com/softmkey/softmkey/rdma"
)

// State is what the devices of a run have done, and have now.
type State struct {
	Devices    []Device
	Operations []summary.Times
	BadBlocks  map[[2]string]uint64 // by kind and domain
}

// Device is the current state of a device.
type Device struct {
	Name          string
	Addr          netip.Addr
	Counters      rdma.Counters
	QPs           map[string]int // by state
	Keys, Regions int
}

// Serve serves at a TCP address, HOST:PORT. It calls read for each request for /metrics. version is that of
// the program.
func Serve(addr, version string, read func() State) (*webserver.Server, error) {
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newCollector(version, read)); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!DOCTYPE html><html lang=\"en\"><title>softmkey</title><p>A run of softmkey: <a href=\"/metrics\">metrics</a> for Prometheus.\n")
	})
	return webserver.Listen(addr, connections, mux)
}

// connections is the largest number of connections that are open at a time.
const connections = 16

// collector reads the state of the run for each request.
type collector struct {
	version  string
	read     func() State
	counters []*prometheus.Desc // of the fields of rdma.Counters
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("softmkey_"+name, help, labels, nil)
}

// The metrics beside the counters of ports.
var (
	build     = desc("build_info", "1, with the version of softmkey and of Go.", "version", "goversion")
	qps       = desc("queue_pairs", "Queue pairs that exist, by state.", "device", "address", "state")
	keys      = desc("memory_keys", "Memory keys (MKEYs) that exist.", "device", "address")
	regions   = desc("memory_regions", "Registered regions that exist.", "device", "address")
	requests  = desc("requests_total", "Requests that ended, by operation and outcome: succeeded, failed, or flushed because their queue had failed.", "operation", "outcome")
	latency   = desc("request_duration_seconds", "Time from the adapter's read of a send request to its end, of those that succeeded.", "operation")
	badBlocks = desc("bad_signatures_total", "Blocks whose signature was bad, by what was bad and by the domain that was checked.", "kind", "domain")
)

func newCollector(version string, read func() State) *collector {
	c := &collector{version: version, read: read}
	fields := reflect.TypeFor[rdma.Counters]()
	for i := range fields.NumField() {
		tag := fields.Field(i).Tag
		c.counters = append(c.counters, desc(tag.Get("json")+"_total", tag.Get("help")+".", "device", "address"))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{build, qps, keys, regions, requests, latency, badBlocks}, c.counters...) {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	metric := func(d *prometheus.Desc, kind prometheus.ValueType, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, n, labels...)
	}
	state := c.read()
	metric(build, prometheus.GaugeValue, 1, c.version, runtime.Version())
	for _, d := range state.Devices {
		addr := d.Addr.String()
		values := reflect.ValueOf(d.Counters)
		for i, desc := range c.counters {
			metric(desc, prometheus.CounterValue, float64(values.Field(i).Uint()), d.Name, addr)
		}
		for _, s := range []rdma.State{rdma.StateReset, rdma.StateInit, rdma.StateRTR, rdma.StateRTS, rdma.StateSQD, rdma.StateSQE, rdma.StateErr} {
			metric(qps, prometheus.GaugeValue, float64(d.QPs[s.String()]), d.Name, addr, s.String())
		}
		metric(keys, prometheus.GaugeValue, float64(d.Keys), d.Name, addr)
		metric(regions, prometheus.GaugeValue, float64(d.Regions), d.Name, addr)
	}
	for _, o := range state.Operations {
		for outcome, n := range map[string]uint64{"succeeded": o.Succeeded, "failed": o.Failed, "flushed": o.Flushed} {
			metric(requests, prometheus.CounterValue, float64(n), o.Operation, outcome)
		}
		within := map[float64]uint64{}
		for i, bound := range summary.Bounds {
			within[bound.Seconds()] = o.Within[i]
		}
		to <- prometheus.MustNewConstHistogram(latency, o.Timed, o.Sum.Seconds(), within, o.Operation)
	}
	for _, kind := range []string{"bad guard", "bad application tag", "bad reference tag"} {
		for _, domain := range []string{"memory", "wire"} {
			metric(badBlocks, prometheus.CounterValue, float64(state.BadBlocks[[2]string{kind, domain}]), kind, domain)
		}
	}
}
