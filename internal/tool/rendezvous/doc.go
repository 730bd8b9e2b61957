// Package rendezvous brings two programs together that want to use a connection
// of package verbs: one listens on a TCP port, the other connects. They tell each
// other lines of JSON, and whoever stays notices when the other one goes.
package rendezvous
