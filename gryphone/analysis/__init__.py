"""The figures behind the claims: measurements that a person can run again."""
