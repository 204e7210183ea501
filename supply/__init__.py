"""What ORTune requires: lock files, licences, bill of materials, audit for known vulnerabilities."""
