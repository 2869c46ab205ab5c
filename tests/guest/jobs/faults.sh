python faults.py
