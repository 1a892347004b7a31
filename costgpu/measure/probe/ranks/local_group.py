"""A process group of many ranks of which only this one exists: it answers as if every rank held the same.

A sum is a multiple, an average is the value itself, what is gathered is the own part as often as there are ranks, and a
broadcast changes nothing. So values stay finite and of the right size, and gathered parameters are filled; a loss says
nothing about other ranks' data. Both the present and the former names of torch's methods are defined.
"""

from __future__ import annotations

OWN_BACKEND = "costgpu_local"


def make_local_group(torch, collectives):
    """Return the class of such groups, for this torch."""
    create_work = torch._C._distributed_c10d._create_work_from_future

    def done(result):
        future = torch.futures.Future()
        future.set_result(result)
        return create_work(future)

    def name_of(options):
        op = getattr(options, "reduceOp", options)
        return str(getattr(op, "op", op)).rsplit(".", 1)[-1].upper()

    def reduce_(tensor, options, ranks):
        """Reduce in place what all ranks hold alike."""
        name, value = name_of(options), tensor.detach()
        if value.dtype is torch.bool or ranks == 1:
            return
        if name in ("SUM", "NONE"):  # without options
            value.mul_(ranks)
        elif name == "PREMUL_SUM":
            factor = getattr(getattr(options, "reduceOp", options), "factor", 1.0)
            value.mul_(factor).mul_(ranks)
        elif name == "PRODUCT":
            value.pow_(ranks)
        elif name == "BXOR" and ranks % 2 == 0:
            value.zero_()

    def copy_(target, source):
        target, source = target.detach(), source.detach()
        if target.shape == source.shape:
            target.copy_(source)
        else:
            most = min(target.numel(), source.numel())
            target.reshape(-1)[:most].copy_(source.reshape(-1)[:most])

    def repeat_(target, source, ranks, own):
        """Fill a tensor with as many copies as there are ranks. The source may be the part of this one in it."""
        whole = target.is_contiguous() and target.numel() == ranks * source.numel()
        parts = target.detach().view(ranks, -1) if whole else target.detach().chunk(ranks)
        if source.data_ptr() != parts[own].data_ptr():
            copy_(parts[own], source)
        if whole:
            for others in (parts[:own], parts[own + 1 :]):
                others.copy_(source.detach().reshape(1, -1))
        else:
            for number, part in enumerate(parts):
                if number != own:
                    copy_(part, source)

    class LocalGroup(torch.distributed.ProcessGroup):
        """Rank `rank` of `ranks`."""

        def __init__(self, rank, ranks):
            super().__init__(rank, ranks)
            self.own_rank, self.ranks = rank, ranks
            self.names = {}

        def getBackendName(self):
            return OWN_BACKEND  # torch would look for the objects of one that it knows

        def _set_group_name(self, name):
            self.names["name"] = name

        def _set_group_desc(self, desc):
            self.names["desc"] = desc

        group_name = property(lambda self: self.names.get("name", ""))
        group_desc = property(lambda self: self.names.get("desc", ""))

        def __repr__(self):
            return "<rank {} of {}, measured alone>".format(self.own_rank, self.ranks)

        def allreduce(self, tensors, opts=None, *args, **kwargs):
            tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
            collectives.add("all_reduce", tensors, self.ranks)
            with collectives.answering():
                for value in tensors:
                    reduce_(value, opts if opts is not None else kwargs.get("op"), self.ranks)
            return done(tensors)

        def allreduce_coalesced(self, tensors, opts=None):
            return self.allreduce(tensors, opts)

        def reduce(self, tensors, opts=None, op=None, *args, **kwargs):
            tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
            collectives.add("reduce", tensors, self.ranks)
            root = opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)
            with collectives.answering():
                for value in tensors if root == self.own_rank else ():
                    reduce_(value, op if isinstance(opts, int) else opts, self.ranks)
            return done(tensors)

        def broadcast(self, tensors, *args, **kwargs):
            tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
            collectives.add("broadcast", tensors, self.ranks)
            return done(tensors)

        def barrier(self, *args, **kwargs):
            collectives.add("barrier", (), self.ranks)
            return done([])

        def monitored_barrier(self, *args, **kwargs):
            self.barrier()

        def allgather(self, outputs, inputs, *args, **kwargs):
            if isinstance(inputs, torch.Tensor):
                outputs, inputs = [outputs], [inputs]
            collectives.add("all_gather", [one for slots in outputs for one in slots], self.ranks)
            with collectives.answering():
                for slots, value in zip(outputs, inputs):
                    for slot in slots:
                        copy_(slot, value)
            return done(outputs)

        def allgather_coalesced(self, outputs, inputs, *args, **kwargs):
            collectives.add("all_gather", [one for slots in outputs for one in slots], self.ranks)
            with collectives.answering():
                for slots in outputs:
                    for slot, value in zip(slots, inputs):
                        copy_(slot, value)
            return done(outputs)

        def all_gather_single(self, output, value, *args, **kwargs):
            collectives.add("all_gather", [output], self.ranks)
            with collectives.answering():
                repeat_(output, value, self.ranks, self.own_rank)
            return done(output)

        def all_gather_single_coalesced(self, outputs, inputs, *args, **kwargs):
            for output, value in zip(outputs, inputs):
                self.all_gather_single(output, value)
            return done(outputs)

        def reduce_scatter(self, outputs, inputs, opts=None, *args, **kwargs):
            if isinstance(outputs, torch.Tensor):
                outputs, inputs = [outputs], [inputs]
            collectives.add("reduce_scatter", [one for parts in inputs for one in parts], self.ranks)
            with collectives.answering():
                for output, parts in zip(outputs, inputs):
                    copy_(output, parts[self.own_rank])
                    reduce_(output, opts, self.ranks)
            return done(outputs)

        def reduce_scatter_single(self, output, value, opts=None, *args, **kwargs):
            collectives.add("reduce_scatter", [value], self.ranks)
            with collectives.answering():
                size = output.numel()
                own = value.detach().reshape(-1)[self.own_rank * size : (self.own_rank + 1) * size]
                copy_(output, own.view(output.shape) if own.numel() == size else own)
                reduce_(output, opts, self.ranks)
            return done(output)

        def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None, *args, **kwargs):
            for output, value in zip(outputs, inputs):
                self.reduce_scatter_single(output, value, opts)
            return done(outputs)

        def all_to_all_single(self, output, value, *args, **kwargs):
            collectives.add("all_to_all", [value], self.ranks)
            with collectives.answering():
                copy_(output, value)
            return done(output)

        def alltoall(self, outputs, inputs, *args, **kwargs):
            collectives.add("all_to_all", inputs, self.ranks)
            with collectives.answering():
                for output, value in zip(outputs, inputs):
                    copy_(output, value)
            return done(outputs)

        def gather(self, outputs, inputs, *args, **kwargs):
            if isinstance(inputs, torch.Tensor):
                outputs, inputs = [outputs], [inputs]
            collectives.add("gather", inputs, self.ranks)
            with collectives.answering():
                for slots, value in zip(outputs, inputs):
                    for slot in slots:
                        copy_(slot, value)
            return done(outputs)

        def scatter(self, outputs, inputs, *args, **kwargs):
            if isinstance(outputs, torch.Tensor):
                outputs, inputs = [outputs], [inputs]
            collectives.add("scatter", outputs, self.ranks)
            with collectives.answering():
                for output, parts in zip(outputs, inputs):
                    if len(parts) > self.own_rank:
                        copy_(output, parts[self.own_rank])
            return done(outputs)

        def send(self, tensors, *args, **kwargs):
            collectives.add("send", tensors, self.ranks)
            return done(tensors)

        def recv(self, tensors, *args, **kwargs):
            collectives.add("recv", tensors, self.ranks)
            with collectives.answering():
                for value in tensors:
                    value.detach().zero_()
            return done(tensors)

        recv_anysource = recv
        _allgather_base = all_gather_single
        allgather_into_tensor_coalesced = all_gather_single_coalesced
        _reduce_scatter_base = reduce_scatter_single
        reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
        alltoall_base = all_to_all_single

        def _start_coalescing(self, *args):
            pass

        def _end_coalescing(self, *args):
            return done([])

        def _set_sequence_number_for_group(self):
            pass

        def _get_sequence_number_for_group(self):
            return 0

        def abort(self):
            pass

        shutdown = abort

    return LocalGroup
