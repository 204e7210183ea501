"""What ORTune requires: lock files with hashes, licences, a bill of materials, and the audit for known vulnerabilities."""
