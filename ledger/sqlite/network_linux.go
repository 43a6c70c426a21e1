package sqlite

import "syscall"

// networks are the file systems, by their magic numbers, that several machines may
// mount at once. FUSE is not among them: it may be anything.
var networks = map[int64]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x5346414f: "AFS",
	0x6b414653: "kAFS",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
}

// networkFS names the network file system that a folder is on; "": it is on none.
func networkFS(dir string) (string, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "", err
	}
	return networks[int64(uint32(s.Type))], nil
}
