"""Who has the node, by when it must be back, and who watches that: lease, lock, mutex, fence, guard."""
