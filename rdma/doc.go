// Package rdma is the vocabulary of RDMA programs: states, operations, statuses, flags,
// attributes and completions, with the numeric values of <infiniband/verbs.h>.
//
// The package imports nothing of this module, and the packages that speak of queue pairs or
// of rights to memory use its types: mkey, roce, verbs and cm. Package verbs gives the names
// that its programs need under the same names, so a program that uses verbs needs no second
// import. These names are left out there, because a device of package verbs does not have
// what they stand for:
//
//   - the types [GSI], [XRCSend] and [XRCRecv] of queue pairs;
//   - memory windows: [MWBind], [WRBindMW], [OpBindMW];
//   - the operations of send requests, [WROp] and [WRWrite] to [WRNop]: a Chain has a method
//     for each;
//   - alternate paths, and queues that are resized: [AttrAltPath], [AttrPathMigState], [AttrCap];
//   - [StatusError] and [FlagNames], which only packages below verbs use.
//
// The package has no behaviour: a value of it can be printed, compared and sent.
package rdma
