/* meetings.cc: what threads wait for: shuffles, votes and gathers of a warp, barriers of a block; and who does not come to
 * one. See run.h. */
#include "kernels/sim/run.h"

#include <stdio.h>
#include <string.h>

const char *ds_sim_meeting_name(int meeting)
{
    static const char *const names[] = {"__syncwarp", "a shuffle",  "__ballot_sync",
                                        "__any_sync", "__all_sync", "mma.sync"};
    return names[meeting];
}

namespace
{

/* ---- meetings of a warp ------------------------------------------------------------------------ */

/* Whether lane l of the warp has come to the meeting at which `first` waits. */
int has_come(int warp, int l, const struct ds_sim_thread *first)
{
    const int i = warp * DS_SIM_WARP + l;
    return l < ds_sim_lanes_of(warp) && ds_sim_now.state[i] == DS_SIM_AT_MEETING &&
           ds_sim_is_at(&ds_sim_now.thread[i], first->mask, first->meeting, first->line);
}

void shuffle(struct ds_sim_thread *t, unsigned mask)
{
    for (int l = 0; l < DS_SIM_WARP; l++) {
        if (!(mask >> l & 1))
            continue;
        if (mask >> t[l].source & 1)
            t[l].result = t[t[l].source].value;
        else
            ds_sim_trouble(
                "a shuffle at %s:%d with mask %08x: lane %d reads lane %d, which is not in "
                "the mask",
                t[l].file, t[l].line, mask, l, t[l].source);
    }
}

void vote(struct ds_sim_thread *t, unsigned mask, int meeting)
{
    uint64_t votes = 0;
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1)
            votes |= (uint64_t)(t[l].value != 0) << l;
    if (meeting == DS_SIM_ANY)
        votes = votes != 0;
    else if (meeting == DS_SIM_ALL)
        votes = votes == mask;
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1)
            t[l].result = votes;
}

void gather(struct ds_sim_thread *t, unsigned mask, uint64_t *all)
{
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1) {
            all[l] = t[l].value;
            t[l].result = reinterpret_cast<uintptr_t>(all);
        }
}

/* All lanes of the mask are at the same one. */
void hold_meeting(int warp, unsigned mask, int meeting)
{
    struct ds_sim_thread *t = &ds_sim_now.thread[warp * DS_SIM_WARP];
    for (int l = 0; l < DS_SIM_WARP; l++)
        if (mask >> l & 1)
            ds_sim_now.state[warp * DS_SIM_WARP + l] = DS_SIM_READY;
    if (meeting == DS_SIM_SHUFFLE)
        shuffle(t, mask);
    else if (meeting == DS_SIM_GATHER)
        gather(t, mask, ds_sim_now.gathered[warp]);
    else if (meeting != DS_SIM_SYNCWARP)
        vote(t, mask, meeting);
}

} /* namespace */

int ds_sim_hold_meetings(int warp)
{
    int held = 0;
    const int lanes = ds_sim_lanes_of(warp);
    const struct ds_sim_thread *one = &ds_sim_now.thread[warp * DS_SIM_WARP];
    /* Mostly all came to one, in this turn: the first of them was compared with itself. */
    if (ds_sim_now.at_one == lanes && one->mask == 0xffffffffu >> (DS_SIM_WARP - lanes)) {
        hold_meeting(warp, one->mask, one->meeting);
        return 1;
    }
    for (int l = 0; l < lanes; l++) {
        const struct ds_sim_thread *first = &ds_sim_now.thread[warp * DS_SIM_WARP + l];
        if (ds_sim_now.state[warp * DS_SIM_WARP + l] != DS_SIM_AT_MEETING)
            continue;
        const unsigned mask = first->mask;
        int all = 1;
        for (int m = 0; m < DS_SIM_WARP && all; m++)
            all = !(mask >> m & 1) || has_come(warp, m, first);
        if (all) {
            hold_meeting(warp, mask, first->meeting);
            held++;
        }
    }
    return held;
}

namespace
{

/* ---- who does not come --------------------------------------------------------------------------- */

void describe_missing(int i, char *out, size_t size)
{
    const struct ds_sim_thread *t = &ds_sim_now.thread[i];
    if (i >= ds_sim_now.threads)
        snprintf(out, size, "does not exist");
    else if (ds_sim_now.state[i] == DS_SIM_ENDED)
        snprintf(out, size, "has ended");
    else if (ds_sim_now.state[i] == DS_SIM_AT_BARRIER)
        snprintf(out, size, "waits at __syncthreads at %s:%d", t->file, t->line);
    else
        snprintf(out, size, "waits at %s at %s:%d with mask %08x", ds_sim_meeting_name(t->meeting),
                 t->file, t->line, t->mask);
}

/* A lane waits for others of its warp that do not come. */
int tell_missing_lane(void)
{
    char missing[160];
    for (int i = 0; i < ds_sim_now.threads; i++) {
        const struct ds_sim_thread *t = &ds_sim_now.thread[i];
        const int warp = i / DS_SIM_WARP;
        if (ds_sim_now.state[i] != DS_SIM_AT_MEETING)
            continue;
        for (int m = 0; m < DS_SIM_WARP; m++) {
            if (!(t->mask >> m & 1) || has_come(warp, m, t))
                continue;
            describe_missing(warp * DS_SIM_WARP + m, missing, sizeof missing);
            ds_sim_trouble("%s at %s:%d with mask %08x, warp %d: lane %d %s",
                           ds_sim_meeting_name(t->meeting), t->file, t->line, t->mask, warp, m,
                           missing);
            return 1;
        }
    }
    return 0;
}

int at_barrier_of(int i, const struct ds_sim_thread *first)
{
    const struct ds_sim_thread *t = &ds_sim_now.thread[i];
    return ds_sim_now.state[i] == DS_SIM_AT_BARRIER && t->line == first->line &&
           (t->file == first->file || strcmp(t->file, first->file) == 0);
}

/* All that have not ended wait at barriers: whether it is one barrier for the whole block. */
int at_one_barrier(void)
{
    char missing[160];
    const struct ds_sim_thread *first = nullptr;
    int came = 0, other = -1;
    for (int i = 0; i < ds_sim_now.threads && !first; i++)
        if (ds_sim_now.state[i] == DS_SIM_AT_BARRIER)
            first = &ds_sim_now.thread[i];
    for (int i = 0; i < ds_sim_now.threads; i++) {
        const int is_there = at_barrier_of(i, first);
        came += is_there;
        other = !is_there && other < 0 ? i : other;
    }
    if (other < 0)
        return 1;
    const struct ds_sim_dim *at = &ds_sim_now.thread[other].index;
    describe_missing(other, missing, sizeof missing);
    ds_sim_trouble("divergent __syncthreads: %d of %d threads wait at %s:%d, thread (%u,%u,%u) %s",
                   came, ds_sim_now.threads, first->file, first->line, at->x, at->y, at->z,
                   missing);
    return 0;
}

int count_in(enum ds_sim_state s)
{
    int n = 0;
    for (int i = 0; i < ds_sim_now.threads; i++)
        n += ds_sim_now.state[i] == s;
    return n;
}

} /* namespace */

int ds_sim_all_at_barrier(void)
{
    return count_in(DS_SIM_ENDED) < ds_sim_now.threads && !tell_missing_lane() && at_one_barrier();
}
