package natsconn

// Server says how to reach NATS. Its files are paths; empty means that there is none.
type Server struct {
	URL   string // server addresses, comma separated
	Creds string // a credentials file: JWT and seed of a user
	NKey  string // a file with a user's NKey seed
	CA    string // PEM, certificates of authorities
	Cert  string // PEM, the client's certificate
	Key   string // PEM, its private key
}
