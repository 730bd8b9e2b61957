//go:build linux

package uverbs

// giveHelpers gives the program the page of the device's helpers, and starts them.
func (c *command) giveHelpers() error {
	d := c.file.dev
	if d.helpers == nil || !d.pump.Help() {
		return errProbe // the library asks every device
	}
	fd, err := c.Give(d.helpers.File())
	if err != nil {
		return err
	}
	c.give(helpersDescriptor, uint64(fd))
	return nil
}
