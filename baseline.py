import hashlib, torch, ocssl
torch.set_num_threads(1)
for m, more in [("solar", {}), ("cla-e", {}), ("pocon", {"schedule.boundaries": True}), ("solar", {"optimizer.name": "adamw", "optimizer.lr": 1e-3}), ("mir", {"optimizer.name": "lars-sgd"})]:
    g = torch.Generator().manual_seed(0)
    l = ocssl.Learner(m, image_size=16, settings={"encoder.width": 4, "memory.capacity": 60, "objective.projection": 32, "schedule.batch": 24, "schedule.passes": 2, **more})
    for _ in range(8): l.partial_fit(torch.randint(0, 256, (10, 3, 16, 16), dtype=torch.uint8, generator=g))
    h = hashlib.sha256()
    for k, t in sorted(l.tensors().items()): h.update(k.encode() + t.contiguous().cpu().numpy().tobytes())
    print(m, more, h.hexdigest()[:16])
