package pci

import (
	"net"
	"testing"
)

// fatal reports whether Linux's health poller takes the initialization segment for that of a function with a fatal
// error, as mlx5_health_check_fatal_sensors in health.c of mlx5_core does: by the state of the interface (disabled, or 7
// for a reset by software), or by a syndrome with the bit RFR.
func (d *driver) fatal() bool {
	state := d.read32(regQueueLow) >> 8 & 7
	return state == 1 || state == 7 || d.read32(regHealthReset)>>31 != 0 && d.read32(regHealthSynd)>>16&0xff != 0
}

// TestUnaskedResets takes the state of a function away under its driver, once and several times. The driver's health
// poller finds a fatal error until the driver sets the address of its commands again; a boot is as the first one then.
// A function without a driver shows no error, except for one that it has itself.
func TestUnaskedResets(t *testing.T) {
	for name, reset := range map[string]func(d *driver){
		"function level reset": func(d *driver) {
			d.dev.WriteConfig(capPCIe+0x08, []byte{0, flrBit})
			d.setMaster(true) // as Linux does, which restores the configuration space
		},
		"reset by the monitor":  func(d *driver) { d.dev.Reset() },
		"bus mastering off, on": func(d *driver) { d.setMaster(false); d.setMaster(true) },
		"bus mastering off":     func(d *driver) { d.setMaster(false) },
		"another client":        func(d *driver) { d.dev.Close(); d.dev.Attach(&d.mem, d) },
		"fatal error":           func(d *driver) { d.dev.Fail() },
		"fatal error and reset": func(d *driver) { d.dev.Fail(); d.dev.Reset() },
	} {
		t.Run(name, func(t *testing.T) {
			d := &driver{t: t, dev: New(Config{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}})}
			d.dev.Attach(&d.mem, d)
			d.setMaster(true)
			reset(d)
			if got := d.fatal(); got != (name == "fatal error" || name == "fatal error and reset") {
				t.Errorf("without a driver: a fatal error is %t", got)
			}
			d.dev.Close()

			d = newDriver(t, Config{})
			for times := range 3 {
				if d.fatal() {
					t.Fatal("a fatal error before the reset")
				}
				d.replay()
				for range times + 1 {
					reset(d)
					if !d.fatal() {
						t.Fatal("the driver finds no fatal error")
					}
				}
				d.start()
			}
			d.replay()
		})
	}
}
