// Package metrics serves the counters of devices to Prometheus.
//
// Each field of [rdma.Counters] is a counter with the labels device and address. Its name is that
// of the field in JSON, with the prefix softmkey_ and the suffix _total.
package metrics

import (
	"net/http"
	"net/netip"
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/softmkey/softmkey/internal/base/webserver"
	"github.com/softmkey/softmkey/rdma"
)

// Device is the current state of a device's counters.
type Device struct {
	Name     string
	Addr     netip.Addr
	Counters rdma.Counters
}

// Serve serves at a TCP address, HOST:PORT. It calls read for each request for /metrics and answers with the
// counters of the devices that read returns.
func Serve(addr string, read func() []Device) (*webserver.Server, error) {
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newCollector(read)); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return webserver.Listen(addr, connections, mux)
}

// connections is the largest number of connections that are open at a time.
const connections = 16

// collector reads the counters of the devices for each request.
type collector struct {
	read  func() []Device
	descs []*prometheus.Desc // of the fields of rdma.Counters
}

func newCollector(read func() []Device) *collector {
	c := &collector{read: read}
	fields := reflect.TypeFor[rdma.Counters]()
	for i := range fields.NumField() {
		name := fields.Field(i).Tag.Get("json")
		help := "Counter " + strings.ReplaceAll(name, "_", " ") + " of the device's port (rdma.Counters." + fields.Field(i).Name + ")."
		c.descs = append(c.descs, prometheus.NewDesc("softmkey_"+name+"_total", help, []string{"device", "address"}, nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, d := range c.read() {
		values := reflect.ValueOf(d.Counters)
		for i, desc := range c.descs {
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(values.Field(i).Uint()), d.Name, d.Addr.String())
		}
	}
}
