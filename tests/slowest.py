"""Print the ten slowest tests of a run in several parts: `python -m tests.slowest JUNIT.xml ...`."""

import sys
from xml.etree import ElementTree

cases = [case.attrib for path in sys.argv[1:] for case in ElementTree.parse(path).iter("testcase")]
slowest = sorted(cases, key=lambda one: float(one["time"]), reverse=True)[:10]
sys.stdout.writelines(f"{float(one['time']):6.1f} s  {one['classname']}::{one['name']}\n" for one in slowest)
